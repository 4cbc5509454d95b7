//! What input can cost is bounded: time, memory, output. Nothing that a user gives makes a program panic.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::inputs::checkpoint::Checkpoint;
use precast_kernels::Arch;
use precast_plan::{
    EvaluationPlan, Gemm, ModelConfig, Objective, Precision, Recipe, Recompute, TrainingPlan, TrainingRequest,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Case, distill, fail, metrics_of, precast, precast_aot, succeed, tiny_config};

impl Case {
    fn bounded_run(&self) -> Command {
        self.distill(&self.out(), &["--steps", "1", "--precision", "fp32", "--checkpoint-every", "0"])
    }

    fn config_file(&self, name: &str, changes: &[(&str, Value)]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, tiny_config(changes).to_string()).unwrap();
        path
    }
}

#[test]
fn layers_are_bounded_and_so_are_lists() {
    let mut case = Case::new(17 * 4);
    let deep = case.config_file("deep.json", &[("num_hidden_layers", (1u32 << 20).into())]);
    let wanted = "num_hidden_layers is 1048576";
    let mut plan = precast();
    plan.args(["plan", "--arch", "sm_90", "--teacher"]).arg(&deep).arg("--student").arg(&deep);
    let mut init = precast();
    init.args(["init", "--out"]).arg(case.path("new")).arg("--config").arg(&deep);
    let mut aot = precast_aot();
    aot.args(["keys", "--model"]).arg(&deep);
    for mut command in [plan, init, aot] {
        let message = fail(&mut command, 5);
        assert!(message.contains(wanted) && message.len() < 1000, "{message}");
    }
    // A file that holds two layers of the 512 it says.
    let config = case.student.join("config.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    json["num_hidden_layers"] = 512.into();
    fs::write(config, json.to_string()).unwrap();
    case.teacher = case.student.clone();
    let message = fail(&mut case.bounded_run(), 5);
    assert!(message.contains("model.layers.2.self_attn.q_proj.weight is missing"), "{message}");
    assert!(message.lines().count() == 22 && message.contains(" more"), "{message}");
}

#[test]
fn numbers_of_a_run_are_bounded() {
    let case = Case::new(17 * 4);
    for (flag, value) in [
        ("--grad-accum", "4294967295"),
        ("--grad-accum", "0"),
        ("--steps", "18446744073709551615"),
        ("--warmup", "18446744073709551615"),
        ("--batch-size", "0"),
        ("--batch-size", "4294967295"),
        ("--seq-len", "0"),
        ("--seq-len", "4294967295"),
        ("--lr", "1e39"),
        ("--temperature", "1e30"),
        ("--temperature", "1e-30"),
    ] {
        let message = fail(case.bounded_run().args([flag, value]), 2);
        // The program's own words, or clap's: `invalid value '0' for '--steps <N>'`.
        let named = [format!("error: {flag} "), format!(" {flag} "), format!("'{flag} ")];
        assert!(message.starts_with("error: ") && named.iter().any(|name| message.contains(name)), "{message}");
    }
    // A step is laid out one micro-batch at a time, whatever their number.
    succeed(case.bounded_run().args(["--grad-accum", "300", "--untrained"]));
    assert_eq!(metrics_of(&case.path("out"))[0].tokens, 300 * 2 * 16);
}

#[test]
fn plans_beyond_all_memory_are_refused_before_they_are_made() {
    let case = Case::new(17 * 4);
    let deep = ("num_hidden_layers", 512.into());
    let huge = case
        .config_file("huge.json", &[("intermediate_size", (1 << 17).into()), ("hidden_size", (1 << 16).into()), deep]);
    let wide = case.config_file("wide.json", &[("intermediate_size", (1 << 20).into())]);
    let small = case.config_file("small.json", &[]);
    for (teacher, student, tokens) in
        [(&huge, &small, "16"), (&huge, &huge, "16"), (&wide, &wide, "4194304"), (&wide, &small, "4194304")]
    {
        let mut command = precast();
        command.args(["plan", "--arch", "sm_90", "--batch-size", tokens, "--seq-len", "1", "--teacher"]);
        let message = fail(command.arg(teacher).arg("--student").arg(student), 2);
        assert!(message.contains("GiB, and no plan takes 1024"), "{message}");
    }
    let model = ModelConfig::from_json(&fs::read_to_string(&huge).unwrap()).unwrap();
    assert!(EvaluationPlan::new(&model, (1, 1), Precision::Bf16, Arch::Sim).is_err());
}

/// Names and files of others end up in messages.
#[test]
fn messages_are_short_and_no_terminal_obeys_them() {
    let case = Case::new(17 * 4);
    let settings = case.path("run.toml");
    fs::write(&settings, format!("steps = \"{}\"\n", "x".repeat(2 << 20))).unwrap();
    let message = fail(case.bounded_run().arg("--config").arg(&settings), 2);
    assert!(message.len() < 20_000 && message.contains("bytes more"), "{} bytes", message.len());
    let odd = case.path("\u{1b}]0;title\u{7}\u{202e}model");
    let message = fail(precast().args(["plan", "--arch", "sm_90", "--student", "x", "--teacher"]).arg(odd), 5);
    assert!(message.contains("\\u001b]0;title\\u0007\\u202emodel"), "{message}");
}

/// Devices, FIFOs and directories in the place of every file that a command takes: refused before a byte is read.
#[test]
fn what_is_no_file_is_not_read() {
    let case = Case::new(17 * 4);
    let fifo = case.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let directory = case.path("directory");
    fs::create_dir(&directory).unwrap();
    let odd = [Path::new("/dev/zero").to_owned(), fifo, directory];
    let model = |file: &str, target: &Path| {
        let model = case.path("model");
        let _ = fs::remove_dir_all(&model);
        fs::create_dir(&model).unwrap();
        for name in ["config.json", "model.safetensors"] {
            fs::copy(case.student.join(name), model.join(name)).unwrap();
        }
        let _ = fs::remove_file(model.join(file));
        std::os::unix::fs::symlink(target, model.join(file)).unwrap();
        model
    };
    for target in &odd {
        for extension in ["bin", "txt", "jsonl"] {
            let data = case.path(format!("odd.{extension}"));
            let _ = fs::remove_file(&data);
            std::os::unix::fs::symlink(target, &data).unwrap();
            let mut command = distill(&case.teacher, &case.student, &data, &case.path("out"));
            let message = fail(&mut command, 5);
            // A directory is its files, whatever it is called.
            let refused = ["expected a regular file", "no data in this directory"];
            assert!(refused.iter().any(|words| message.contains(words)), "{message}");
        }
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            let mut command = distill(&case.teacher, &model(file, target), &case.data, &case.path("out"));
            let message = fail(&mut command, 5);
            assert!(message.contains("expected a regular file") || message.contains("no model at"), "{message}");
        }
        for flag in ["--bundle", "--config"] {
            let output = case.bounded_run().arg(flag).arg(target).output().unwrap();
            let message = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && message.contains("expected a regular file"), "{message}");
        }
        let message = fail(precast().args(["plan", "--arch", "sm_90", "--student", "x", "--teacher"]).arg(target), 5);
        assert!(message.contains("expected a regular file") || message.contains("not a model"), "{message}");
    }
}

/// A path that is not UTF-8 is still a path.
#[test]
fn paths_that_are_not_utf8_work() {
    let case = Case::new(17 * 4);
    let odd = |name: &[u8]| case.path(OsStr::from_bytes(name));
    let (teacher, student, data, out) = (odd(b"t\xff"), odd(b"s\xff"), odd(b"d\xff.bin"), odd(b"o\xff"));
    fs::rename(&case.teacher, &teacher).unwrap();
    fs::rename(&case.student, &student).unwrap();
    fs::rename(&case.data, &data).unwrap();
    let run = |resume: &[&str]| {
        let mut command = distill(&teacher, &student, &data, &out);
        command.args(["--batch-size", "2", "--seq-len", "16", "--precision", "fp32"]).args(resume);
        command
    };
    succeed(&mut run(&["--steps", "1"]));
    succeed(&mut run(&["--steps", "2", "--resume"]));
    // The run that is replaced goes, whatever its name.
    succeed(&mut run(&["--steps", "1", "--overwrite"]));
    assert!(!odd(b"o\xff.replaced-1").exists());
    let record: Value = serde_json::from_slice(&fs::read(out.join("run.json")).unwrap()).unwrap();
    assert!(record["config"]["teacher"].as_str().unwrap().ends_with("t\u{fffd}"), "{record}");
    succeed(precast().arg("report").arg(&out));
    let new = odd(b"n\xff");
    succeed(precast().args(["init", "--layers", "0", "--from"]).arg(&teacher).arg("--out").arg(&new));
    succeed(precast().args(["eval", "--untrained", "--device", "sim", "--model"]).arg(&new).arg("--data").arg(&data));
    succeed(
        precast()
            .args(["plan", "--json", "--device", "sim", "--teacher"])
            .args([&teacher])
            .arg("--student")
            .arg(&student)
            .args(["--seq-len", "16"]),
    );
    // What cannot be read says which it was, as well as it can.
    let message =
        fail(precast().args(["eval", "--device", "sim", "--model"]).arg(odd(b"x\xff")).arg("--data").arg(&data), 5);
    assert!(message.contains("x\u{fffd}"), "{message}");
}

#[test]
fn a_panic_says_that_it_is_a_bug_and_what_to_send() {
    for (mut command, name) in [(precast(), "precast"), (precast_aot(), "precast-aot")] {
        let output = command.arg("bug").output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{message}");
        let first = format!("error: this is a bug in {name}, whatever its input was. Please report these lines");
        assert!(message.starts_with(&first), "{message}");
        for part in
            ["panic: asked for by name", "at: ", "cli/mod.rs:", "command: ", "\"bug\"", env!("CARGO_PKG_VERSION")]
        {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains("RUST_BACKTRACE"), "{message}");
    }
}

fn recipe(batch: u32, seq_len: u32, precision: Precision, recompute: Recompute) -> Recipe {
    let objective = Objective::Distill { alpha: 0.5, temperature: 2.0, beta: 0.0 };
    Recipe { batch, seq_len, precision, objective, weight_decay: 0.0, clip: 1.0, recompute, gemm: Gemm::Bundle }
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

const SIZES: [&str; 8] = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
];
const FIELDS: [&str; 12] = [
    "architectures",
    "model_type",
    "rms_norm_eps",
    "rope_theta",
    "rope_parameters",
    "rope_scaling",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "layer_types",
    "hidden_act",
    "quantization_config",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Whatever a config.json says, it is planned or refused.
    #[test]
    fn configurations_are_planned_or_refused(
        sizes in prop::collection::vec((prop::sample::select(&SIZES[..]), size()), 0..4),
        fields in prop::collection::vec((prop::sample::select(&FIELDS[..]), anything()), 0..2),
        class in prop::sample::select(vec!["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"]),
        (batch, seq_len) in (0..5u32, prop_oneof![0..70u32, Just(1 << 12), Just(u32::MAX)]),
        recompute in prop::sample::select(&Recompute::ALL[..]),
    ) {
        let mut config = tiny_config(&[]);
        config["architectures"] = json!([class]);
        for (field, value) in sizes {
            config[field] = value.into();
        }
        for (field, value) in fields {
            config[field] = value;
        }
        let Ok(model) = ModelConfig::from_json(&config.to_string()) else { return Ok(()) };
        let tiny = ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
        for (precision, arch) in [(Precision::Fp32, Arch::Sim), (Precision::Bf16, Arch::GPUS[1])] {
            let recipe = recipe(batch, seq_len, precision, recompute);
            let _ = TrainingPlan::new(TrainingRequest::new(&tiny, &recipe, arch).taught_by(Some(&model)));
            let _ = TrainingPlan::new(TrainingRequest::new(&model, &recipe, arch).taught_by(Some(&tiny)));
            let _ = EvaluationPlan::new(&model, (batch, seq_len), precision, arch);
        }
    }

    /// Whatever a safetensors header says, the file opens or is refused.
    #[test]
    fn safetensors_headers_open_or_are_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        header_only in any::<bool>(),
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
        succeed(case.bounded_run().env("RAYON_NUM_THREADS", threads).arg("--overwrite"));
    }
}
