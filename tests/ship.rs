//! A run that trains for a file in blocks computes, step by step, with the values that the file will hold.

use precast::run::step::StepRecord;

use crate::export::with_tokenizer;
use crate::golden::Golden;
use crate::support::prelude::*;

/// Files that are trained for: of rows of 256, and of rows for which blocks of 32 stand.
const FILES: [&str; 3] = ["q8_0", "q4_0", "q4_k"];

/// A student with a tokenizer, of rows of 256, 512 and 128 columns, and data for it.
fn case() -> Case {
    let case = Case::new(17 * 8);
    fs::remove_dir_all(&case.student).unwrap();
    let sizes = [("vocab_size", 300), ("hidden_size", 256), ("intermediate_size", 512)];
    let range = ("initializer_range", 0.05.into());
    let changes: Vec<_> = sizes.map(|(name, size)| (name, size.into())).into_iter().chain([range]).collect();
    case.model("student", 2, &changes);
    with_tokenizer(&case.student);
    case
}

fn train(case: &Case, out: &str, arguments: &[&str]) -> Command {
    let arguments: Vec<&str> = ["--lr 1e-3"].into_iter().chain(arguments.iter().copied()).collect();
    case.train(out, arguments.join(" "))
}

fn export(case: &Case, model: &str, format: &str) -> String {
    let file = format!("{}.{format}.gguf", model.replace('/', "-"));
    let _ = fs::remove_file(case.path(&file));
    case.run(["export --format", format, "--model", model, "--out", &file]).succeeds();
    file
}

/// The first step of a run that trains for a file has the loss and the gradients of one that begins with the file.
#[test]
fn a_step_computes_with_the_values_that_the_file_holds() {
    skip_if!(lacks_kernels());
    let case = case();
    for format in FILES {
        let file = export(&case, "student", format);
        for precision in ["fp32", "bf16", "int8"] {
            let steps = ["--steps 1 --overwrite --precision", precision];
            train(&case, "own", &[&steps[..], &["--ship", format]].concat()).succeeds();
            train(&case, "file", &[&steps[..], &["--model", &file]].concat()).succeeds();
            train(&case, "dense", &steps).succeeds();
            let [own, file, dense] = ["own", "file", "dense"].map(|out| {
                let record = &case.metrics(out)[0];
                (record.loss, record.grad_norm)
            });
            assert_eq!(own, file, "{format} {precision}");
            assert_ne!(own, dense, "{format} {precision}");
        }
    }
}

/// A master that differs in its last bit may be rounded to another number, in blocks of 4 bits to a distant one: so
/// first steps are compared to 2e-6, and later ones to what such numbers move.
#[test]
fn steps_are_those_of_pytorch_through_blocks() {
    let golden = Golden::of("made-qwen2");
    for (format, later) in [("q8_0", 2e-5), ("q4_0", 5e-4)] {
        let steps = golden.run(["--precision fp32 --ship", format]);
        let text = golden.case.text(format!("golden/ship/{format}.jsonl"));
        let expected: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(steps.len(), expected.len());
        let far = |of: &dyn Fn(&StepRecord) -> Option<f64>, name: &str| {
            let far =
                |(step, line): (&StepRecord, &Value)| (of(step).unwrap() / line[name].as_f64().unwrap() - 1.0).abs();
            steps.iter().zip(&expected).map(far).collect::<Vec<f64>>()
        };
        let loss = far(&|step| step.loss, "loss");
        assert!(loss[0] < 2e-6 && loss.iter().all(|far| *far < later), "{format}: {loss:?}");
        let norm = far(&|step| step.grad_norm, "grad_norm");
        assert!(norm[0] < 2e-6, "{format}: {norm:?}");
    }
}

/// The last held-out loss of a run is that of the file for which it names the command, which `eval` sums in another
/// order, and not that of its weights.
#[test]
fn the_file_of_a_run_is_what_it_trained() {
    let case = case();
    let of_head = ["q4_k --ship-head q8_0", "q4_k --ship-head q6_k"];
    for (ship, precision) in FILES.into_iter().chain(of_head).zip(["fp32", "bf16", "fp32", "bf16", "fp32"]) {
        let data = case.data.to_str().unwrap();
        let held_out = ["--steps 3 --overwrite --eval-data", data, "--precision", precision, "--ship", ship];
        let [said, _] = train(&case, "out", &held_out).says();
        let trained = case.metrics("out").pop().unwrap().held_out.unwrap().eval_ce_loss.unwrap();
        let command = said.lines().find_map(|line| line.strip_prefix("file:    precast ")).expect("a command");
        let _ = fs::remove_file(case.path("out.gguf"));
        case.run(command.replace("MODEL.gguf", "out.gguf")).succeeds();
        let [of_file, of_weights] = ["out.gguf", "out/student"].map(|model| {
            let eval =
                ["eval --untrained --json --seq-len 16 --format stored --precision", precision, "--model", model];
            let said = case.run(eval).with(["--data", data]).args(on_device()).says()[0].clone();
            serde_json::from_str::<Value>(&said).unwrap()["nll"].as_f64().unwrap()
        });
        assert!((of_file - trained).abs() < 1e-6, "{ship} {precision}: {of_file}, {trained}");
        assert!((of_weights - trained).abs() > 1e-5, "{ship} {precision}: {of_weights}, {trained}");
        let recorded = &case.record("out")["config"];
        assert_eq!(recorded["ship"], ship[..4]);
        assert_eq!(recorded["ship_head"].as_str(), ship.split(' ').nth(2));
    }
}

/// Of a model that teaches itself, the difference is its quantization: it has something to learn.
#[test]
fn a_model_learns_from_itself_what_a_file_takes_from_it() {
    let case = case();
    let own = ["--steps 1 --overwrite --ship q4_0 --teacher", "student"];
    let [said, _] = case.distill("out", ["--lr 1e-3", &own.join(" ")]).says();
    assert!(case.metrics("out")[0].kd_loss > Some(1e-6));
    assert!(said.contains("ship     matrices train as a file has them: 14 x Q4_0, 1 x Q6_K"), "{said}");
    case.distill("out", "--steps 1 --overwrite --teacher student").fails(5, "hold the same weights");
}

#[test]
fn ranks_recomputing_and_continuing_give_one_set_of_weights() {
    skip_if!(is_on_gpu());
    let case = case();
    for precision in ["fp32", "bf16", "int8"] {
        let run = |out: &str, arguments: &str| {
            let ship = ["--replicas 4 --grad-accum 4 --checkpoint-every 2 --precision", precision, "--ship", arguments];
            train(&case, out, &ship)
        };
        run("whole", "q4_0 --steps 4 --overwrite").succeeds();
        for (out, more) in [
            ("two", "--gpus 2"),
            ("four", "--gpus 4"),
            ("norms", "--recompute norms"),
            ("blocks", "--recompute blocks"),
        ] {
            run(out, &format!("q4_0 --steps 4 --overwrite {more}")).succeeds();
            assert!(case.bits(out) == case.bits("whole"), "{precision} {out}");
        }
        run("parts", "q4_0 --steps 2 --overwrite").succeeds();
        run("parts", "q4_0 --steps 4 --resume").succeeds();
        assert!(case.bits("parts") == case.bits("whole"), "{precision}");
        let said = run("parts", "q8_0 --steps 5 --resume").fails(2, "ship was q4_0, is q8_0");
        assert!(said.contains("is another run"), "{said}");
    }
}

#[test]
fn what_cannot_be_trained_for_a_file_is_refused_by_name() {
    let case = case();
    train(&case, "out", &["--steps 1 --ship q4_0 --lora-rank 4"]).fails(2, "--ship trains all of a model for its file");
    train(&case, "out", &["--steps 1 --ship-head q6_k"]).fails(2, "--ship-head requires --ship");
    train(&case, "out", &["--steps 1 --ship q5_0"]).fails(2, "expected q8_0, q4_0, q4_k");
    case.model("narrow", 2, &[("intermediate_size", 72.into())]);
    let narrow = ["--steps 1 --ship q4_0 --model", "narrow"];
    let said = train(&case, "out", &narrow).fails(2, "which are no whole blocks of 32");
    assert!(said.contains("mlp.down_proj.weight has rows of 72 elements"), "{said}");
    case.run("export --model student --out s.gguf --head q6_k").fails(2, "--head requires --format");
    assert!(!case.has("out") && !case.has("s.gguf"));
}
