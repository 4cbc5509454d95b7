//! What input can cost is bounded: time, memory, output. Nothing that a user gives makes a program panic.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use precast::inputs::checkpoint::Checkpoint;
use precast_kernels::Arch;
use precast_plan::{
    EvaluationPlan, ModelConfig, Objective, Precision, Recipe, Recompute, TrainingPlan, TrainingRequest,
};
use proptest::prelude::*;

use crate::support::prelude::*;

fn run(case: &Case, more: &str) -> Command {
    case.distill("out", ["--steps 1 --precision fp32 --checkpoint-every 0", more])
}

/// A step is laid out one micro-batch at a time, whatever their number.
#[test]
fn a_step_of_many_micro_batches_runs() {
    let case = Case::new(17 * 4);
    run(&case, "--grad-accum 300 --untrained").succeeds();
    assert_eq!(case.metrics("out")[0].tokens, 300 * 2 * 16);
}

#[test]
fn an_evaluation_beyond_all_memory_is_not_planned() {
    let sizes = [("intermediate_size", 1 << 17), ("hidden_size", 1 << 16), ("num_hidden_layers", 512)];
    let huge = shape(&tiny_config(&sizes.map(|(name, size)| (name, size.into()))));
    assert!(EvaluationPlan::new(&huge, (1, 1), Precision::Bf16, Arch::Sim).is_err());
}

/// Names and files of others end up in messages.
#[test]
fn messages_are_short_and_no_terminal_obeys_them() {
    let case = Case::new(17 * 4);
    case.write("run.toml", format!("{} = 1\n", "x".repeat(2 << 20)));
    let message = run(&case, "--config run.toml").fails(2, "bytes more");
    assert!(message.len() < 20_000, "{} bytes", message.len());
    let odd = "\u{1b}]0;title\u{7}\u{202e}model";
    case.run("plan --arch sm_90 --student x --teacher").arg(odd).fails(5, "\\u001b]0;title\\u0007\\u202emodel");
}

/// Devices, FIFOs and directories in the place of every file that a command takes: refused before a byte is read.
#[test]
fn what_is_no_file_is_not_read() {
    let case = Case::new(17 * 4);
    case.fifo("fifo");
    fs::create_dir(case.path("directory")).unwrap();
    let refused = |mut command: Command, words: [&str; 2]| {
        let (code, _, message) = command.ends();
        assert!(code != Some(0) && words.iter().any(|words| message.contains(words)), "{message}");
        code.unwrap()
    };
    let regular = "expected a regular file";
    for target in ["/dev/zero", "fifo", "directory"] {
        let link = |name: &str| {
            let _ = fs::remove_file(case.path(name));
            std::os::unix::fs::symlink(case.path(target), case.path(name)).unwrap();
        };
        for name in ["odd.bin", "odd.txt", "odd.jsonl"] {
            link(name);
            // A directory is its files, whatever it is called.
            assert_eq!(refused(run(&case, &format!("--data {name}")), [regular, "no data in this directory"]), 5);
        }
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            let _ = fs::remove_dir_all(case.path("model"));
            copy(&case.student, &case.path("model"));
            link(&format!("model/{file}"));
            assert_eq!(refused(run(&case, "--student model"), [regular, "no model at"]), 5);
        }
        for flag in ["--bundle", "--config"] {
            refused(run(&case, &format!("{flag} {target}")), [regular, regular]);
        }
        let plan = case.run(["plan --arch sm_90 --student x --teacher", target]);
        assert_eq!(refused(plan, [regular, "not a model"]), 5);
    }
}

/// A path that is not UTF-8 is still a path.
#[test]
fn paths_that_are_not_utf8_work() {
    let mut case = Case::new(17 * 4);
    let odd = |name: &'static [u8]| OsStr::from_bytes(name);
    let (teacher, student, data, out) = (odd(b"t\xff"), odd(b"s\xff"), odd(b"d\xff.bin"), odd(b"o\xff"));
    for (path, name) in [(&mut case.teacher, teacher), (&mut case.student, student), (&mut case.data, data)] {
        let renamed = path.with_file_name(name);
        fs::rename(&*path, &renamed).unwrap();
        *path = renamed;
    }
    let run = |how: &str| case.distill(out, ["--precision fp32", how]).succeeds();
    run("--steps 1");
    run("--steps 2 --resume");
    // The run that is replaced goes, whatever its name.
    run("--steps 1 --overwrite");
    assert!(!case.path(odd(b"o\xff.replaced-1")).exists());
    let record = case.record(out);
    assert!(record["config"]["teacher"].as_str().unwrap().ends_with("t\u{fffd}"), "{record}");
    case.run("report").arg(out).succeeds();
    case.run("init --layers 0 --from").arg(teacher).arg("--out").arg(odd(b"n\xff")).succeeds();
    let eval = |model: &OsStr| {
        let mut eval = case.run("eval --untrained --device sim --model");
        eval.arg(model).arg("--data").arg(data);
        eval
    };
    eval(odd(b"n\xff")).succeeds();
    let mut plan = case.run("plan --json --device sim --seq-len 16 --teacher");
    plan.arg(teacher).arg("--student").arg(student).succeeds();
    // What cannot be read says which it was, as well as it can.
    eval(odd(b"x\xff")).fails(5, "x\u{fffd}");
}

#[test]
fn a_panic_says_that_it_is_a_bug_and_what_to_send() {
    for (mut command, name) in [(precast(), "precast"), (precast_aot(), "precast-aot")] {
        let (code, _, message) = command.arg("bug").ends();
        assert_eq!(code, Some(1), "{message}");
        let first = format!("error: this is a bug in {name}, whatever its input was. Please report these lines");
        assert!(message.starts_with(&first), "{message}");
        let parts = ["panic: asked for by name", "at: ", "cli/", "command: ", "\"bug\"", env!("CARGO_PKG_VERSION")];
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        assert!(!message.contains("RUST_BACKTRACE"), "{message}");
    }
}

fn recipe(batch: u32, seq_len: u32, precision: Precision, recompute: Recompute) -> Recipe {
    let objective = Objective::Distill { alpha: 0.5, temperature: 2.0, beta: 0.0 };
    Recipe { batch, seq_len, precision, objective, clip: 1.0, recompute, ..Recipe::PLAIN }
}

/// Sizes near every edge that a configuration has.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..70u64,
        (0..34u32).prop_map(|bits| 1 << bits),
        (0..34u32).prop_map(|bits| (1u64 << bits) - 1),
        Just(u64::MAX),
        (1..200u64).prop_map(|n| 16 * n),
    ]
}

/// Anything that JSON has.
fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        size().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({"rope_type": "default", "rope_theta": 1e300})),
        (any::<f64>(), size()).prop_map(|(factor, original)| json!({"rope_type": "llama3", "factor": factor,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": original})),
        Just(json!([["full_attention"]])),
    ]
}

const SIZES: &str = "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads \
    head_dim vocab_size max_position_embeddings";
const FIELDS: &str = "architectures model_type rms_norm_eps rope_theta rope_parameters rope_scaling \
    tie_word_embeddings attention_bias mlp_bias layer_types hidden_act quantization_config";

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Whatever a config.json says, it is planned or refused.
    #[test]
    fn configurations_are_planned_or_refused(
        sizes in prop::collection::vec((prop::sample::select(SIZES.split(' ').collect::<Vec<_>>()), size()), 0..4),
        fields in prop::collection::vec((prop::sample::select(FIELDS.split(' ').collect::<Vec<_>>()), anything()),
            0..2),
        family in prop::sample::select(vec!["llama", "qwen2", "qwen3"]),
        (batch, seq_len) in (0..5u32, prop_oneof![0..70u32, Just(1 << 12), Just(u32::MAX)]),
        recompute in prop::sample::select(&Recompute::ALL[..]),
    ) {
        let mut config = tiny_config(&[]);
        (config["architectures"], config["model_type"]) = (Value::Null, family.into());
        for (field, value) in sizes {
            config[field] = value.into();
        }
        for (field, value) in fields {
            config[field] = value;
        }
        let Ok(model) = ModelConfig::from_json(&config.to_string()) else { return Ok(()) };
        let tiny = shape(&tiny_config(&[]));
        for (precision, arch) in [(Precision::Fp32, Arch::Sim), (Precision::Bf16, Arch::GPUS[1])] {
            let recipe = recipe(batch, seq_len, precision, recompute);
            let _ = TrainingPlan::new(TrainingRequest::new(&tiny, &recipe, arch).taught_by(Some(&model)));
            let _ = TrainingPlan::new(TrainingRequest::new(&model, &recipe, arch).taught_by(Some(&tiny)));
            let _ = EvaluationPlan::new(&model, (batch, seq_len), precision, arch);
        }
    }

    /// Whatever bytes of a safetensors file are changed to, and wherever it is cut, it opens or is refused.
    #[test]
    fn safetensors_headers_open_or_are_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        (header_only, cut) in any::<(bool, bool)>(),
    ) {
        thread_local! { static CASE: Case = Case::new(17 * 4); }
        CASE.with(|case| {
            let file = case.student.join("model.safetensors");
            let whole = fs::read(&file).unwrap();
            let header = 8 + u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
            let mut bytes = whole.clone();
            for (at, byte) in &changes {
                let at = at.index(if header_only { header } else { whole.len() });
                // Digits stay digits half of the time: then the JSON reads and its numbers are wrong.
                bytes[at] = if bytes[at].is_ascii_digit() && byte % 2 == 0 { b'0' + byte / 2 % 10 } else { *byte };
            }
            if cut {
                bytes.truncate(changes[0].0.index(whole.len()));
            }
            fs::write(&file, &bytes).unwrap();
            let _ = Checkpoint::open(&case.student);
            fs::write(&file, whole).unwrap();
        });
    }
}

#[test]
fn threads_are_no_more_than_cores_whatever_a_variable_says() {
    let case = Case::new(17 * 4);
    for threads in ["60000", "0", "-1", "many"] {
        run(&case, "").env("RAYON_NUM_THREADS", threads).with("--overwrite").succeeds();
    }
}
