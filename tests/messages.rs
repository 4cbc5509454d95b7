//! What people read when a file is not there or is not what its name says, with the exit code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast_fatbins::{Code, Digest, Manifest, encode};

use crate::support::{
    Case, device, distill, fail, is_note, metrics_of, precast, precast_aot, succeed, tiny_config, token_file, tokenizer,
};

/// What a clone without git-lfs holds in place of a file.
const POINTER: &[u8] =
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb\nsize 12345\n";
const PAGE: &[u8] = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n";
const MARK: &[u8] = b"\xEF\xBB\xBF";
const TEXT: &str = "the cat sat on the mat and the cat sat on the mat and the cat sat on the mat again";

/// Two models with one tokenizer.
fn case() -> Case {
    let case = Case::new(0);
    for model in [&case.teacher, &case.student] {
        fs::write(model.join("tokenizer.json"), tokenizer(TEXT).to_string()).unwrap();
    }
    case
}

/// Text as UTF-16 with its byte order mark.
fn utf16(text: &str) -> Vec<u8> {
    [vec![0xFF, 0xFE], text.encode_utf16().flat_map(u16::to_le_bytes).collect()].concat()
}

impl Case {
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A short run.
    fn run(&self, student: &Path, data: &Path, out: &str) -> Command {
        let mut command = distill(&self.teacher, student, data, &self.dir.path().join(out));
        command.args(["--steps", "2", "--batch-size", "2", "--seq-len", "8", "--precision", "fp32"]);
        command
    }

    /// The message of a command that must fail, without the scratch directory's name.
    fn message(&self, command: &mut Command, exit_code: i32) -> String {
        let message = fail(command, exit_code).replace(&self.dir.path().display().to_string(), "DIR");
        // Notes come first.
        let message: Vec<&str> = message.lines().filter(|line| !is_note(line)).collect();
        format!("{exit_code} {}\n", message.join("\n"))
    }
}

fn on_device(name: &str, arguments: &[&str]) -> Command {
    let mut command = precast();
    command.args([name, "--device", &device()]).args(arguments);
    command
}

#[test]
fn what_people_read_when_something_is_not_there() {
    let case = case();
    let data = token_file(case.dir.path(), "data.bin", 9 * 4, 10);
    let nothing = case.dir.path().join("nothing");
    let (nothing, text) = (nothing.as_path(), case.file("text.txt", TEXT.as_bytes()));
    let mut messages = Vec::new();
    let mut check = |exit_code: i32, command: &mut Command| messages.push(case.message(command, exit_code));
    check(3, case.run(&case.student, &data, "out").arg("--bundle").arg(nothing));
    check(3, precast().arg("kernels").arg("--bundle").arg(nothing));
    check(2, case.run(&case.student, &data, "out").arg("--config").arg(nothing));
    check(5, &mut case.run(nothing, &data, "out"));
    check(5, &mut case.run(Path::new("Qwen/Qwen2.5-0.5B"), &data, "out"));
    check(5, on_device("eval", &["--model", "Qwen/Qwen2.5-0.5B", "--data"]).arg(&data));
    check(
        5,
        on_device("plan", &["--teacher", "Qwen/Qwen2.5-1.5B", "--student", "Qwen/Qwen2.5-0.5B"])
            .args(["--arch", "sim"]),
    );
    check(5, on_device("bench", &["--teacher", "Qwen/Qwen2.5-1.5B", "--student", "Qwen/Qwen2.5-0.5B"]).arg("--json"));
    check(5, precast().args(["init", "--config"]).arg(nothing).arg("--out").arg(case.dir.path().join("new")));
    check(
        5,
        precast()
            .args(["init", "--from"])
            .arg(nothing)
            .args(["--layers", "0", "--out"])
            .arg(case.dir.path().join("new")),
    );
    check(5, precast().arg("report").arg(nothing));
    check(5, &mut case.run(&case.student, nothing, "out"));
    check(5, &mut case.run(&case.student, &case.dir.path().join("none.txt"), "out"));
    // Something, and not a model.
    check(5, &mut case.run(case.dir.path(), &data, "out"));
    check(5, &mut case.run(&case.student.join("model.safetensors"), &data, "out"));
    check(5, &mut case.run(&text, &data, "out"));
    let bare = case.dir.path().join("bare");
    fs::create_dir(&bare).unwrap();
    fs::copy(case.student.join("config.json"), bare.join("config.json")).unwrap();
    check(5, &mut case.run(&bare, &data, "out"));
    fs::write(bare.join("pytorch_model.bin"), "PK").unwrap();
    check(5, &mut case.run(&bare, &data, "out"));
    // A run's directory, and what is in it.
    for (out, more) in [("run", &[][..]), ("tuned", &["--lora-rank", "2"])] {
        succeed(case.run(&case.student, &data, out).args(more));
        check(5, on_device("eval", &["--data"]).arg(&data).arg("--model").arg(case.dir.path().join(out)));
    }
    check(5, on_device("eval", &["--data"]).arg(&data).arg("--model").arg(case.dir.path().join("run/checkpoint-2")));
    insta::assert_snapshot!(messages.join("\n"));
    assert!(!case.dir.path().join("out/run.json").exists() && !case.dir.path().join("new").exists());
}

#[test]
fn what_people_read_when_a_file_is_not_what_its_name_says() {
    let case = case();
    let data = token_file(case.dir.path(), "data.bin", 9 * 4, 10);
    let mut messages = Vec::new();
    let mut check = |exit_code: i32, command: &mut Command| messages.push(case.message(command, exit_code));
    let wide = utf16("{}");
    for (kind, bytes) in [("pointer", POINTER), ("page", PAGE), ("utf16", &wide)] {
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            // Weights have no encoding.
            if (kind, file) != ("utf16", "model.safetensors") {
                let model = case.student_with(&format!("{kind}-{file}"), file, bytes);
                let text = case.file("text.txt", TEXT.as_bytes());
                check(5, &mut case.run(&model, &text, "out"));
            }
        }
        if kind != "utf16" {
            check(5, &mut case.run(&case.file(&format!("{kind}.gguf"), bytes), &data, "out"));
            let bundle = case.file(&format!("{kind}.bundle"), bytes);
            check(3, case.run(&case.student, &data, "out").arg("--bundle").arg(bundle));
            check(5, &mut case.run(&case.student, &case.file(&format!("{kind}.bin"), bytes), "out"));
        }
        check(5, &mut case.run(&case.student, &case.file(&format!("{kind}.jsonl"), bytes), "out"));
        if kind != "page" {
            check(5, &mut case.run(&case.student, &case.file(&format!("{kind}.txt"), bytes), "out"));
        }
        let toml = case.file(&format!("{kind}.toml"), bytes);
        check(2, case.run(&case.student, &data, "out").arg("--config").arg(toml));
    }
    insta::assert_snapshot!(messages.join("\n"));
    assert!(!case.dir.path().join("out/run.json").exists());
}

/// A byte order mark before UTF-8 changes nothing.
#[test]
fn byte_order_marks_are_skipped() {
    let case = case();
    let marked = |bytes: &[u8]| [MARK, bytes].concat();
    let lines = format!("{{\"text\": \"{TEXT}\"}}\n").repeat(2);
    let losses = |command: &mut Command, out: &str| {
        succeed(command);
        metrics_of(&case.dir.path().join(out)).iter().map(|record| record.loss).collect::<Vec<_>>()
    };
    for (name, text) in [("text.txt", TEXT), ("lines.jsonl", &lines)] {
        let plain = case.file(name, text.as_bytes());
        let with_mark = case.file(&format!("marked-{name}"), &marked(text.as_bytes()));
        let expected = losses(&mut case.run(&case.student, &plain, &format!("out-{name}")), &format!("out-{name}"));
        let out = format!("out-marked-{name}");
        assert_eq!(losses(&mut case.run(&case.student, &with_mark, &out), &out), expected, "{name}");
        for file in ["config.json", "tokenizer.json"] {
            let bytes = fs::read(case.student.join(file)).unwrap();
            let model = case.student_with(&format!("{name}-{file}"), file, &marked(&bytes));
            let out = format!("out-{name}-{file}");
            assert_eq!(losses(&mut case.run(&model, &plain, &out), &out), expected, "{name} {file}");
        }
        let toml = case.file("run.toml", &marked(b"grad_accum = 1\n"));
        let out = format!("out-toml-{name}");
        assert_eq!(losses(case.run(&case.student, &plain, &out).arg("--config").arg(toml), &out), expected, "{name}");
    }
    let config = case.file("marked.json", &marked(&fs::read(case.student.join("config.json")).unwrap()));
    succeed(precast().args(["init", "--config"]).arg(&config).arg("--out").arg(case.dir.path().join("init")));
    succeed(
        precast()
            .args(["plan", "--arch", "sim", "--seq-len", "8", "--teacher"])
            .arg(&config)
            .arg("--student")
            .arg(&config),
    );
}

#[test]
fn a_bundle_that_is_not_there_is_named_by_precast_aot() {
    let case = case();
    let (there, nothing) = (case.file("there", b""), case.dir.path().join("nothing"));
    let commands: [&[&Path]; 6] = [
        &["verify".as_ref(), &nothing],
        &["inspect".as_ref(), &nothing],
        &["diff".as_ref(), &nothing, &there],
        &["diff".as_ref(), "--code".as_ref(), &nothing, &there],
        &["publish".as_ref(), "--bundle".as_ref(), &nothing, "--to".as_ref(), "new".as_ref()],
        &["verify".as_ref(), case.dir.path()],
    ];
    for arguments in commands {
        let message = case.message(precast_aot().args(arguments), 3);
        assert!(message.contains("cannot read the bundle DIR") && message.contains("precast-aot build"), "{message}");
    }
}

/// A bundle that opens but does not verify: its machine code is no cubin.
#[test]
fn a_bundle_that_is_refused_is_named_and_not_called_embedded() {
    let case = case();
    let model = precast_plan::ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
    let mut manifest = Manifest::simulated(&precast_plan::build_keys(&[model], precast_kernels::Arch::Sim));
    let code = b"no machine code";
    let module = &mut manifest.modules[0];
    module.arch = "sm_90a".to_owned();
    module.code = Some(Code {
        entry: "entry".to_owned(),
        digest: Digest::of(code),
        bytes: code.len() as u64,
        registers: 32,
        static_shared_bytes: 0,
        stack_bytes: 0,
        max_threads: 256,
    });
    let path = case.file("bad.bundle", &encode(&manifest, |_| code));
    let data = token_file(case.dir.path(), "data.bin", 9 * 4, 10);
    let mut commands =
        [case.run(&case.student, &data, "out"), on_device("selftest", &[]), precast(), on_device("eval", &["--model"])];
    commands[2].arg("kernels");
    commands[3].arg(&case.student).args(["--seq-len", "8", "--data"]).arg(&data);
    for command in &mut commands {
        let message = case.message(command.arg("--bundle").arg(&path), 3);
        assert!(message.contains("DIR/bad.bundle: ") && !message.contains("embedded"), "{message}");
    }
    assert!(!case.dir.path().join("out/run.json").exists());
}
