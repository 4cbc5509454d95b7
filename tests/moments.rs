//! A run whose moments are in bf16: as much learned in less memory, and the same bits however it is divided.

use crate::support::prelude::*;

/// A student of several pieces for each of four ranks, and data for it.
fn case() -> Case {
    let case = Case::new(17 * 8);
    fs::remove_dir_all(&case.student).unwrap();
    let sizes = [("hidden_size", 256.into()), ("intermediate_size", 512.into()), ("initializer_range", 0.05.into())];
    case.model("student", 2, &sizes);
    case
}

fn train(case: &Case, out: &str, arguments: &[&str]) -> Command {
    let arguments: Vec<&str> = ["--lr 1e-3 --overwrite"].into_iter().chain(arguments.iter().copied()).collect();
    case.train(out, arguments.join(" "))
}

/// The bytes of a tensor of a checkpoint, without its header.
fn tensor(case: &Case, checkpoint: &str, name: &str) -> Vec<u8> {
    let file = case.read(format!("{checkpoint}/{name}.safetensors"));
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    file[8 + header as usize..].to_vec()
}

#[test]
fn ranks_recomputing_and_continuing_give_one_set_of_weights() {
    skip_if!(is_on_gpu());
    let case = case();
    for precision in ["fp32", "bf16", "int8"] {
        let run = |out: &str, arguments: &str| {
            let all = ["--lr 1e-3 --replicas 4 --grad-accum 4 --checkpoint-every 2 --precision", precision, arguments];
            case.train(out, all.join(" "))
        };
        run("whole", "--moments bf16 --steps 4 --overwrite").succeeds();
        for (out, more) in [
            ("two", "--gpus 2"),
            ("four", "--gpus 4"),
            ("norms", "--recompute norms"),
            ("blocks", "--recompute blocks"),
        ] {
            run(out, &format!("--moments bf16 --steps 4 --overwrite {more}")).succeeds();
            assert!(case.bits(out) == case.bits("whole"), "{precision} {out}");
        }
        run("parts", "--moments bf16 --steps 2 --overwrite --gpus 4").succeeds();
        run("parts", "--moments bf16 --steps 4 --resume").succeeds();
        assert!(case.bits("parts") == case.bits("whole"), "{precision}");
        let said = run("parts", "--steps 5 --resume").fails(2, "moments was bf16, is fp32");
        assert!(said.contains("is another run"), "{said}");
    }
}

#[test]
fn adapters_and_files_train_with_them_on_any_number_of_ranks() {
    skip_if!(is_on_gpu());
    let case = case();
    for more in ["--lora-rank 4", "--ship q8_0"] {
        let run = |out: &str, arguments: &str| {
            let all = ["--steps 3 --replicas 2 --grad-accum 2 --moments bf16 --clip 0.5", more, arguments];
            train(&case, out, &all).succeeds();
        };
        run("one", "");
        run("two", "--gpus 2");
        assert!(case.bits("one") == case.bits("two"), "{more}");
        train(&case, "fp32", &["--steps 3 --replicas 2 --grad-accum 2 --clip 0.5", more]).succeeds();
        assert!(case.bits("one") != case.bits("fp32"), "{more}");
    }
}

/// The first step begins with moments of 0, and so has the same update in either format.
#[test]
fn the_loss_is_close_to_that_of_moments_in_fp32() {
    let case = case();
    for precision in ["fp32", "bf16"] {
        let steps = ["--steps 40 --checkpoint-every 40 --precision", precision];
        for (out, moments) in [("plain", ""), ("fp32", "--moments fp32"), ("bf16", "--moments bf16")] {
            train(&case, out, &[&steps[..], &[moments]].concat()).succeeds();
        }
        assert!(case.bits("plain") == case.bits("fp32"), "fp32 is the default");
        assert!(case.weights("bf16") != case.weights("fp32"));
        let [fp32, bf16] = ["fp32", "bf16"].map(|out| case.losses(out));
        assert_eq!(fp32[..2], bf16[..2]);
        let (learned, apart) = (fp32[0] - fp32[39], (fp32[39] - bf16[39]).abs());
        assert!(learned > 0.1 && apart < 0.05 * learned, "{precision}: {learned}, {apart}");
        assert_eq!(["plain", "bf16"].map(|out| case.record(out)["config"]["moments"].clone()), ["fp32", "bf16"]);
    }
}

/// Of weights that hardly move, moments in bf16 are those in fp32 but for rounding, whose errors cancel out over steps
/// and elements. With the same bits in each step, or to the nearest value, they would add up.
#[test]
fn a_checkpoint_holds_moments_that_are_right_on_average() {
    let case = case();
    for moments in ["fp32", "bf16"] {
        let still = ["--precision fp32 --lr 1e-9 --steps 60 --checkpoint-every 60 --overwrite --moments", moments];
        case.train(moments, still.join(" ")).succeeds();
    }
    let read = |out: &str, name| tensor(&case, &format!("{out}/checkpoint-60"), name);
    assert_eq!(read("fp32", "master").len(), read("bf16", "master").len());
    for name in ["m", "v"] {
        let (whole, half) = (read("fp32", name), read("bf16", name));
        assert_eq!(whole.len(), 2 * half.len());
        let exact = whole.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
        let rounded = half.chunks_exact(2).map(|bytes| f32::from_le_bytes([0, 0, bytes[0], bytes[1]]));
        let pairs: Vec<[f64; 2]> = exact.zip(rounded).map(|(exact, of)| [exact, of].map(f64::from)).collect();
        let sum = |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|[exact, rounded]| of(*exact, *rounded)).sum::<f64>();
        let bias = sum(&|exact, of| (of - exact) * exact.signum()) / sum(&|exact, _| exact.abs());
        let spread = (sum(&|exact, of| (of - exact).powi(2)) / sum(&|exact, _| exact * exact)).sqrt();
        assert!(bias.abs() < 1e-4 && spread < 1.5e-2, "{name}: {bias:e}, {spread:e}");
    }
}

#[test]
fn plan_shows_half_the_bytes() {
    let case = case();
    let bytes = |moments: &str| -> u64 {
        let plan = ["plan --model student --batch-size 1 --seq-len 16 --device sim --moments", moments];
        let said = case.run(plan).says()[0].clone();
        let row = said.lines().find(|line| line.trim_start().starts_with("moments ")).expect("a row");
        row.split_whitespace().rev().nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(bytes("fp32"), 2 * bytes("bf16"));
}

#[test]
fn other_moments_are_refused_by_name() {
    let case = case();
    let said = train(&case, "out", &["--steps 1 --moments fp16"]).fails(2, "fp16");
    assert!(said.contains("fp32 or bf16"), "{said}");
    train(&case, "out", &["--steps 2 --checkpoint-every 1"]).succeeds();
    case.train("out", "--lr 1e-3 --steps 3 --resume --moments bf16").fails(2, "moments was fp32, is bf16");
}
