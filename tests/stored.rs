//! A model that stays on the device as its file holds it computes what it computes when it is dequantized while it is read:
//! the same bits.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast_kernels::{Arch, Block};
use precast_plan::{Formats, ModelConfig, Parameters, build_keys};
use serde_json::{Value, json};

use crate::gguf;
use crate::support::{
    distill, fail, is_note, is_sim, metrics_of, model_config, on_device, precast, random_model, root, run_record,
    succeed, texts, tiny_config, token_file,
};

/// Rows of every matrix are whole blocks of 256. The head is larger than what layers are dequantized to, so that all of its
/// parts are there.
fn model(family: &str, tied: bool) -> ModelConfig {
    let mut config = model_config("blocks");
    config["architectures"] = json!([family]);
    config["tie_word_embeddings"] = tied.into();
    ModelConfig::from_json(&config.to_string()).unwrap()
}

/// Every format at once: each GEMM's parts differ, the head and the embedding too. Every seventh matrix is dense.
fn mix(config: &ModelConfig) -> Formats {
    let matrices = Parameters::new(config).list.into_iter().filter(|parameter| parameter.shape.len() == 2);
    let mixed = matrices.enumerate().filter(|(index, _)| index % 7 != 6);
    mixed.map(|(index, matrix)| (matrix.name, Block::ALL[index * 3 % 8])).collect()
}

struct Case {
    dir: tempfile::TempDir,
    student: PathBuf,
    data: PathBuf,
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let student = random_model(
        dir.path(),
        "student",
        2,
        &tiny_config(&[("vocab_size", model_config("blocks")["vocab_size"].clone())]),
    );
    let data = token_file(dir.path(), "data.bin", 17 * 8, 96);
    Case { dir, student, data }
}

impl Case {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, teacher: &Path, out: &str, arguments: &[&str]) -> Command {
        let mut command = distill(teacher, &self.student, &self.data, &self.path(out));
        command.args(["--batch-size", "2", "--seq-len", "16", "--lr", "1e-2"]).args(arguments);
        if !arguments.contains(&"--steps") {
            command.args(["--steps", "2"]);
        }
        command
    }

    /// Losses of each step and the final weights, bit for bit, in both forms of the teacher.
    fn assert_same_bits(&self, teacher: &Path, precision: &str, what: &str) {
        let [wide, stored] = ["bf16", "stored"].map(|format| {
            let out = format!("{what}-{precision}-{format}").replace(' ', "-");
            let arguments = ["--precision", precision, "--teacher-format", format, "--checkpoint-every", "0"];
            succeed(&mut self.run(teacher, &out, &arguments));
            let run = run_record(&self.path(&out));
            assert_eq!(run["config"]["teacher_format"], format);
            let scratch = run["memory"]["planned"].to_string().contains("teacher_scratch");
            assert_eq!(scratch, format == "stored", "{what}");
            bits(&self.path(&out))
        });
        assert!(wide == stored, "{what} {precision}");
    }
}

fn bits(out: &Path) -> (Vec<[u64; 3]>, Vec<u8>) {
    let bits = |value: Option<f64>| value.expect("a finite number").to_bits();
    let steps = metrics_of(out);
    let losses = steps.iter().map(|step| [bits(step.loss), bits(step.kd_loss), bits(step.grad_norm)]).collect();
    (losses, fs::read(out.join("student/model.safetensors")).unwrap())
}

#[test]
fn a_teacher_in_each_format_teaches_the_same_bits() {
    let case = case();
    let config = model("LlamaForCausalLM", false);
    for block in Block::ALL {
        let teacher =
            gguf::write(case.dir.path(), &format!("{block}.gguf"), &config, &Formats::uniform(&config, block), 1);
        for precision in ["fp32", "bf16"] {
            case.assert_same_bits(&teacher, precision, &block.to_string());
        }
    }
}

#[test]
fn a_teacher_in_a_mix_of_formats_teaches_the_same_bits() {
    let case = case();
    for (family, tied) in [("LlamaForCausalLM", false), ("LlamaForCausalLM", true), ("Qwen2ForCausalLM", false)] {
        let config = model(family, tied);
        for (name, formats) in [("mixed", mix(&config)), ("q4_k_m", Formats::q4_k_m(&config))] {
            let what = format!("{name} {family} {tied}");
            let teacher = gguf::write(case.dir.path(), &format!("{what}.gguf"), &config, &formats, 7);
            for precision in ["fp32", "bf16"] {
                case.assert_same_bits(&teacher, precision, &what);
            }
        }
    }
}

#[test]
fn micro_batches_and_a_wider_vocabulary_change_nothing() {
    let case = case();
    let config = ModelConfig { vocab: 1200, ..model("LlamaForCausalLM", true) };
    let teacher = gguf::write(case.dir.path(), "wide.gguf", &config, &mix(&config), 3);
    let [wide, stored] = ["bf16", "stored"].map(|format| {
        let arguments = ["--grad-accum", "2", "--recompute", "blocks", "--teacher-format", format];
        succeed(&mut case.run(&teacher, format, &arguments));
        bits(&case.path(format))
    });
    assert!(wide == stored);
}

#[test]
fn a_run_may_continue_with_its_teacher_in_the_other_form() {
    let case = case();
    let config = model("LlamaForCausalLM", false);
    let teacher = gguf::write(case.dir.path(), "teacher.gguf", &config, &mix(&config), 5);
    let four = ["--steps", "4", "--checkpoint-every", "1"];
    succeed(&mut case.run(&teacher, "whole", &[&four[..], &["--teacher-format", "bf16"]].concat()));
    for (out, first, second) in [("one", "bf16", "stored"), ("other", "stored", "bf16")] {
        succeed(&mut case.run(&teacher, out, &["--checkpoint-every", "1", "--teacher-format", first]));
        let printed =
            succeed(&mut case.run(&teacher, out, &[&four[..], &["--resume", "--teacher-format", second]].concat()));
        let change = format!("teacher_format was \"{first}\", is \"{second}\"");
        assert!(printed.contains(&change), "{printed}");
        let run = run_record(&case.path(out));
        assert!(run["parts"][1]["changed"].to_string().contains("teacher_format was"), "{}", run["parts"]);
        assert!(bits(&case.path(out)) == bits(&case.path("whole")), "{first} then {second}");
    }
}

#[test]
fn auto_is_bf16_on_the_simulated_gpu() {
    if !is_sim() {
        return;
    }
    let case = case();
    let config = model("LlamaForCausalLM", true);
    let teacher = gguf::write(case.dir.path(), "teacher.gguf", &config, &mix(&config), 5);
    succeed(&mut case.run(&teacher, "out", &[]));
    assert_eq!(run_record(&case.path("out"))["config"]["teacher_format"], "bf16");
    let report = fs::read_to_string(case.path("out/report.html")).unwrap();
    assert!(report.contains("<td>teacher_format</td><td>bf16</td>"));
}

/// Safetensors hold no blocks: both forms are one, and that is said.
#[test]
fn a_stored_hugging_face_directory_is_a_bf16_one() {
    let case = case();
    let teacher = random_model(case.dir.path(), "teacher", 9, &tiny_config(&[("vocab_size", 1000.into())]));
    let output = case.run(&teacher, "stored", &["--teacher-format", "stored"]).output().unwrap();
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    let heading = stdout.lines().find(|line| line.starts_with("teacher ")).expect(&stdout);
    assert!(heading.ends_with(", as bf16: nothing in it is quantized"), "{stdout}");
    assert!(!stdout.lines().any(|line| line.starts_with("student ") && line.contains("quantized")), "{stdout}");
    assert_eq!(run_record(&case.path("stored"))["config"]["teacher_format"], "bf16");
    succeed(&mut case.run(&teacher, "bf16", &["--teacher-format", "bf16"]));
    assert!(bits(&case.path("stored")) == bits(&case.path("bf16")));
}

#[test]
fn a_model_has_the_same_likelihood_in_both_forms() {
    let case = case();
    for family in ["LlamaForCausalLM", "Qwen2ForCausalLM"] {
        let config = model(family, false);
        let model = gguf::write(case.dir.path(), "model.gguf", &config, &mix(&config), 11);
        for precision in ["fp32", "bf16"] {
            let [wide, stored] = ["bf16", "stored"].map(|format| {
                let mut command = precast();
                command.args([
                    "eval",
                    "--untrained",
                    "--json",
                    "--format",
                    format,
                    "--precision",
                    precision,
                    "--model",
                ]);
                command.arg(&model).arg("--data").arg(&case.data).args(on_device());
                let score: Value = serde_json::from_str(&succeed(&mut command)).unwrap();
                score["nll"].as_f64().unwrap().to_bits()
            });
            assert_eq!(wide, stored, "{family} {precision}");
        }
    }
}

/// Both forms refuse the same files, in the same words, before a step is made.
#[test]
fn damaged_blocks_are_refused_before_anything_runs() {
    let case = case();
    let config = model("LlamaForCausalLM", false);
    let formats = Formats::uniform(&config, Block::Q4_K);
    let teacher = gguf::write(case.dir.path(), "teacher.gguf", &config, &formats, 5);
    let whole = fs::read(&teacher).unwrap();
    let refused = |name: &str, bytes: &[u8]| -> String {
        let damaged = case.path(&format!("{name}.gguf"));
        fs::write(&damaged, bytes).unwrap();
        let [wide, stored] = ["bf16", "stored"].map(|format| {
            let message = fail(&mut case.run(&damaged, &format!("{name}-{format}"), &["--teacher-format", format]), 5);
            assert!(!case.path(&format!("{name}-{format}/metrics.jsonl")).exists());
            message
        });
        assert_eq!(notes_apart(&wide), notes_apart(&stored));
        wide
    };
    assert!(refused("cut", &whole[..whole.len() - 4000]).contains("truncated"));
    // The scale of a block of the last query matrix, whose rows are put in another order.
    let q = fs::read(&teacher).unwrap().windows(19).position(|at| at == b"blk.1.attn_q.weight").unwrap();
    let entry = q + 19;
    let offset = u64::from_le_bytes(whole[entry + 24..entry + 32].try_into().unwrap()) as usize;
    let data = whole.len() - data_bytes(&config, &formats);
    let mut damaged = whole.clone();
    damaged[data + offset + 10 * 144..][..2].copy_from_slice(&[0x00, 0x7C]);
    let message = refused("scale", &damaged);
    assert!(message.contains("model.layers.1.self_attn.q_proj.weight is "), "{message}");
    // Another type of block than the size is of.
    let mut damaged = whole.clone();
    damaged[entry + 20..entry + 24].copy_from_slice(&8u32.to_le_bytes());
    damaged.truncate(whole.len() - data_bytes(&config, &formats) + offset + 256 * 256);
    assert!(refused("type", &damaged).contains("truncated"));
}

fn notes_apart(message: &str) -> String {
    let lines = message.lines().filter(|line| !is_note(line));
    // The file is the same; elements are counted alike and shown in the precision that they are read in.
    lines.collect::<Vec<_>>().join("\n").replace("(as bf16)", "(as f32)")
}

/// Bytes behind the table: each tensor and its padding.
fn data_bytes(config: &ModelConfig, formats: &Formats) -> usize {
    let bytes = |parameter: &precast_plan::Parameter| match formats.of(&parameter.name) {
        Some(block) => precast_kernels::Format::Block(block).bytes(parameter.elems()),
        None => parameter.elems() * if parameter.shape.len() == 2 { 2 } else { 4 },
    };
    Parameters::new(config).list.iter().map(|parameter| bytes(parameter).next_multiple_of(32) as usize).sum()
}

#[test]
fn kernels_that_a_stored_teacher_needs_are_missed_at_the_start() {
    if !is_sim() {
        return;
    }
    let case = case();
    let config = model("LlamaForCausalLM", false);
    let teacher = gguf::write(case.dir.path(), "teacher.gguf", &config, &Formats::uniform(&config, Block::Q5_1), 5);
    let student = fs::read_to_string(case.student.join("config.json")).unwrap();
    let student = ModelConfig::from_json(&student).unwrap();
    let mut keys = build_keys(&[config, student], Arch::Sim);
    keys.retain(|pair| !pair.to_string().starts_with("dequant{w=Q5_1"));
    let bundle = case.path("without.bundle");
    fs::write(&bundle, precast_fatbins::encode(&precast_fatbins::Manifest::simulated(&keys), |_| &[])).unwrap();
    let bundle = bundle.display().to_string();
    let run = |out: &str, format: &str| case.run(&teacher, out, &["--bundle", &bundle, "--teacher-format", format]);
    succeed(&mut run("bf16", "bf16"));
    let message = fail(&mut run("stored", "stored"), 3);
    assert!(message.contains("1 of ") && message.contains("dequant{w=Q5_1,x=bf16}"), "{message}");
}

/// From configurations alone, which stand for files in the mix of Q4_K_M, on a machine without a GPU.
#[test]
fn a_plan_says_what_either_form_takes() {
    let built_in = |name: &str| root().join(format!("aot/models/{name}.json"));
    let plan = |arguments: &[&str]| -> Command {
        let mut command = precast();
        command.arg("plan").arg("--teacher").arg(built_in("qwen2.5-7b")).arg("--student").arg(built_in("qwen2.5-0.5b"));
        command.args(["--arch", "sm_89", "--batch-size", "8", "--seq-len", "1024"]).args(arguments);
        command
    };
    let json = |arguments: &[&str]| -> Value { serde_json::from_str(&succeed(plan(arguments).arg("--json"))).unwrap() };
    let row = |plan: &Value, category: &str| -> u64 {
        let rows = plan["memory"]["rows"].as_array().unwrap();
        rows.iter().filter(|row| row["category"] == category).map(|row| row["bytes"].as_u64().unwrap()).sum()
    };
    let (auto, stored) = (json(&[]), json(&["--teacher-format", "stored"]));
    assert!(row(&stored, "teacher_weights") + row(&stored, "teacher_scratch") <= 6_000_000_000);
    assert!(stored["memory"]["total_bytes"].as_u64().unwrap() <= 45 << 29, "22.5 GiB");
    assert_eq!((row(&auto, "teacher_scratch"), &auto["teacher_format"]["chosen"]), (0, &json!("bf16")));
    assert_eq!(stored["teacher_format"]["chosen"], "stored");
    assert_eq!(auto["teacher_format"]["choices"], stored["teacher_format"]["choices"]);
    assert_eq!(stored["teacher_format"]["choices"][1]["bytes"], stored["memory"]["total_bytes"]);
    let printed = succeed(&mut plan(&["--teacher-format", "stored"]));
    let lines = printed.lines().skip_while(|line| !line.starts_with("--teacher-format"));
    insta::assert_snapshot!(lines.take(5).collect::<Vec<_>>().join("\n"));
}

/// A configuration alone is measured in the mix of Q4_K_M.
#[test]
fn bench_measures_a_stored_teacher_of_random_weights() {
    let case = case();
    let teacher = root().join("tests/models/blocks.json");
    let mut command = precast();
    command.args(["bench", "--json", "--steps", "2", "--batch-size", "1", "--seq-len", "16", "--teacher"]).arg(teacher);
    command.arg("--student").arg(&case.student).args(["--teacher-format", "stored"]).args(on_device());
    let record: Value = serde_json::from_str(&succeed(&mut command)).unwrap();
    assert_eq!(record["config"]["teacher_format"], "stored");
    let kernels: Vec<&str> =
        record["kernels"].as_array().unwrap().iter().map(|one| one["kernel"].as_str().unwrap()).collect();
    assert!(kernels.iter().any(|kernel| kernel.starts_with("dequant{w=Q4_K")), "{kernels:?}");
}

/// `init` writes what `distill` reads, the same bytes for a seed, and replaces only what it wrote.
#[test]
fn init_writes_a_teacher_in_the_mix_of_q4_k_m() {
    let case = case();
    let config = root().join("tests/models/blocks.json");
    let init = |out: &Path, arguments: &[&str]| {
        let mut command = precast();
        command.args(["init", "--format", "Q4_K_M", "--config"]).arg(&config).arg("--out").arg(out).args(arguments);
        command
    };
    let (out, file) = (case.path("teacher"), case.path("teacher/model.gguf"));
    succeed(&mut init(&out, &["--seed", "3"]));
    let written = fs::read(&file).unwrap();
    assert!(fail(&mut init(&out, &["--seed", "3"]), 2).contains("--overwrite"));
    succeed(&mut init(&out, &["--seed", "3", "--overwrite"]));
    assert!(fs::read(&file).unwrap() == written);
    succeed(&mut init(&case.path("other"), &["--seed", "4"]));
    assert!(fs::read(case.path("other/model.gguf")).unwrap() != written);
    for format in ["bf16", "stored"] {
        succeed(&mut case.run(&file, format, &["--teacher-format", format]));
    }
    assert!(bits(&case.path("bf16")) == bits(&case.path("stored")));
    fs::write(&file, &written[..written.len() - 1]).unwrap();
    assert!(fail(&mut init(&out, &["--seed", "3", "--overwrite"]), 2).contains("changed since it was written"));
}
