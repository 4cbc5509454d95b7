//! Bad input: a typed error with location and remedy, the right exit code, no panic, nothing half-written.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use crate::support::{Case, copy, distill, fail, precast, random_model, succeed, tiny_config};

impl Case {
    /// A short run, changed, that must fail; its message without the scratch directory's name.
    fn fails(&self, exit_code: i32, change: impl FnOnce(&mut Run)) -> String {
        let mut run = Run {
            teacher: self.student.clone(),
            student: self.student.clone(),
            data: self.data.clone(),
            arguments: Vec::new(),
        };
        change(&mut run);
        let out = self.path("out");
        let mut command = distill(&run.teacher, &run.student, &run.data, &out);
        command.args(["--steps", "2", "--batch-size", "2", "--precision", "fp32", "--checkpoint-every", "0"]);
        // Most cases need no second model.
        command.arg("--allow-identical");
        if !run.arguments.iter().any(|argument| argument == "--seq-len") {
            command.args(["--seq-len", "16"]);
        }
        command.args(&run.arguments);
        let message = fail(&mut command, exit_code);
        assert!(!out.join("student").exists(), "a failed run wrote a student");
        message.replace(&self.dir.path().display().to_string(), "DIR")
    }
}

struct Run {
    teacher: PathBuf,
    student: PathBuf,
    data: PathBuf,
    arguments: Vec<String>,
}

/// A copy of the student with one file changed.
fn damaged(case: &Case, name: &str, file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> PathBuf {
    let model = case.path(name);
    copy(&case.student, &model);
    let path = model.join(file);
    let bytes = fs::read(&path).unwrap_or_default();
    fs::write(path, change(bytes)).unwrap();
    model
}

fn rewritten_config(case: &Case, name: &str, field: &str, value: serde_json::Value) -> PathBuf {
    damaged(case, name, "config.json", |bytes| {
        let mut config: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        config[field] = value;
        config.to_string().into_bytes()
    })
}

#[test]
fn what_people_read_when_input_is_bad() {
    let case = Case::new(17 * 4);
    let file = |name: &str, bytes: &[u8]| {
        let path = case.path(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut messages = Vec::new();
    let mut check = |exit_code: i32, change: &dyn Fn(&mut Run)| messages.push(case.fails(exit_code, |run| change(run)));

    check(5, &|run| run.teacher = "/no/such/model".into());
    let cut = damaged(&case, "cut", "model.safetensors", |bytes| bytes[..bytes.len() / 2].to_vec());
    check(5, &|run| run.student = cut.clone());
    let garbled = damaged(&case, "garbled", "model.safetensors", |mut bytes| {
        bytes[..8].fill(0xff);
        bytes
    });
    check(5, &|run| run.student = garbled.clone());
    let wrong_shape = rewritten_config(&case, "wrong-shape", "intermediate_size", 64.into());
    check(5, &|run| run.student = wrong_shape.clone());
    let mixtral = rewritten_config(&case, "mixtral", "architectures", serde_json::json!(["MixtralForCausalLM"]));
    check(5, &|run| run.teacher = mixtral.clone());
    let scaled =
        rewritten_config(&case, "scaled", "rope_scaling", serde_json::json!({"rope_type": "llama3", "factor": 8.0}));
    check(5, &|run| run.teacher = scaled.clone());
    let narrow = random_model(case.dir.path(), "narrow", 2, &tiny_config(&[("vocab_size", 64.into())]));
    check(5, &|run| run.teacher = narrow.clone());
    let gguf = file("cut.gguf", b"GGUF\x03\x00\x00\x00\x10\x00");
    check(5, &|run| run.teacher = gguf.clone());
    let tokenizer = damaged(&case, "tokenizer", "tokenizer.json", |_| b"{\"version\": \"1.0\", ".to_vec());
    let text = file("text.txt", b"Some text.");
    check(5, &|run| {
        run.student = tokenizer.clone();
        run.data = text.clone();
    });
    check(5, &|run| run.data = text.clone());
    let beyond =
        file("beyond.bin", &[[1u8, 0, 0, 0]; 33].concat().into_iter().chain([96, 0, 0, 0]).collect::<Vec<u8>>());
    check(5, &|run| run.data = beyond.clone());
    let empty = file("empty.bin", b"");
    check(5, &|run| run.data = empty.clone());
    let ragged = file("ragged.bin", &[0; 70]);
    check(5, &|run| run.data = ragged.clone());
    let lines = file("lines.jsonl", b"{\"text\": 1}\n");
    check(5, &|run| run.data = lines.clone());
    check(2, &|run| run.arguments = vec!["--seq-len".into(), "65".into()]);
    check(2, &|run| run.arguments = vec!["--alpha".into(), "1.5".into()]);
    let toml = file("run.toml", b"learning_rate = 1e-3\n");
    check(2, &|run| run.arguments = vec!["--config".into(), toml.display().to_string()]);
    let bundle = file("cut.bundle", b"\x7fELF");
    check(3, &|run| run.arguments = vec!["--bundle".into(), bundle.display().to_string()]);
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_missing_driver_is_a_device_error() {
    if crate::support::is_sim() && !precast_runtime::cuda::is_present() {
        let case = Case::new(17 * 4);
        let message = case.fails(4, |run| run.arguments = vec!["--device".into(), "cuda:0".into()]);
        assert!(message.contains("no NVIDIA driver") && message.contains("--device sim"), "{message}");
    }
}

#[test]
fn a_damaged_bundle_is_refused_by_name() {
    let case = Case::new(17 * 4);
    let model = precast_plan::ModelConfig::from_json(&tiny_config(&[]).to_string()).unwrap();
    let manifest =
        precast_fatbins::Manifest::simulated(&precast_plan::build_keys(&[model], precast_kernels::Arch::Sim));
    let whole = precast_fatbins::encode(&manifest, |_| &[]);
    for (name, change) in [("flipped", 700usize), ("tail", whole.len() - 1)] {
        let mut bytes = whole.clone();
        bytes[change] ^= 1;
        let path = case.path(name);
        fs::write(&path, bytes).unwrap();
        let message = case.fails(3, |run| run.arguments = vec!["--bundle".into(), path.display().to_string()]);
        assert!(message.contains(&format!("DIR/{name}")), "{message}");
    }
}

#[test]
fn a_limit_of_file_sizes_is_an_error_of_the_file_and_leaves_nothing_half_written() {
    let case = Case::new(17 * 4);
    // Whether or not the signal that comes with it was ignored.
    for (name, before) in [("signalled", ""), ("ignored", "trap '' XFSZ; ")] {
        let out = case.path(name);
        // Files of this process cannot grow past 32 KiB, or 16, as shells count: the student's weights do not fit, all else does.
        let mut command = std::process::Command::new("sh");
        let program = crate::support::precast();
        command.arg("-c").arg(format!("{before}ulimit -f 32; exec \"$0\" \"$@\"")).arg(program.get_program());
        command.args(["distill", "--device", "sim", "--steps", "2", "--batch-size", "2", "--seq-len", "16"]);
        command.args(["--allow-identical", "--precision", "fp32", "--checkpoint-every", "0"]);
        command.arg("--teacher").arg(&case.student);
        command.arg("--student").arg(&case.student).arg("--data").arg(&case.data).arg("--out").arg(&out);
        let message = fail(&mut command, 5);
        assert!(message.contains("cannot write") && message.contains(&format!("{name}/student")), "{message}");
        assert!(message.contains("bytes at most (`ulimit -f`): raise that limit"), "{message}");
        assert_eq!(crate::support::names_in(&out), ["metrics.jsonl", "report.html", "run.json", "run.log"]);
    }
}

/// Programs that write a model, or a file, are not ended by a signal either.
#[test]
fn every_program_that_writes_outlives_the_limit() {
    let case = Case::new(17 * 4);
    let config = case.path("config.json");
    fs::write(&config, tiny_config(&[]).to_string()).unwrap();
    let limited = |kib: u32, program: std::process::Command| {
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(format!("ulimit -f {kib}; exec \"$0\" \"$@\"")).arg(program.get_program());
        command.args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    };
    let mut init = precast();
    init.args(["init", "--config"]).arg(&config).arg("--out").arg(case.path("made"));
    let mut man = precast();
    man.arg("man").arg(case.path("man"));
    let mut build = crate::support::precast_aot();
    build.args(["build", "--arch", "sm_89", "--key", "cast", "--out"]).arg(case.path("bundle"));
    for (kib, command, left) in [(4, init, "made"), (1, man, "man/precast.1"), (0, build, "bundle")] {
        let message = fail(&mut limited(kib, command), 5);
        assert!(message.contains("(`ulimit -f`)") || message.contains("File too large"), "{message}");
        assert!(!case.path(left).exists(), "{left}");
    }
}

/// The dynamic loader waits for whoever writes to it.
#[test]
fn a_fifo_in_place_of_a_library_is_refused_by_name() {
    let case = Case::new(17 * 4);
    let named = ["libcublasLt.so.13", "libnvrtc.so.13"].map(|name| case.path(name));
    for fifo in &named {
        succeed(std::process::Command::new("mkfifo").arg(fifo));
    }
    let mut train = crate::support::train(&case.student, &case.data, &case.path("out"));
    train.args(["--device", "cuda:0", "--gemm", "cublas", "--seq-len", "16"]).env("PRECAST_CUBLAS", case.dir.path());
    let message = fail(&mut train, 3);
    assert!(message.contains("libcublasLt.so.13: not there"), "{message}");
    let build = |name: &std::path::Path| {
        let mut build = crate::support::precast_aot();
        build.args(["build", "--arch", "sm_89", "--key", "cast", "--nvrtc"]).arg(name).arg("--out");
        build.arg(case.path("bundle"));
        build
    };
    for name in [&named[1], case.dir.path()] {
        let message = fail(&mut build(name), 1);
        assert!(message.contains(&format!("{} (given explicitly)", name.display())), "{message}");
    }
}

#[test]
fn a_compiler_that_is_too_old_is_refused_by_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let library = crate::support::build_old_nvrtc(dir.path());
    let mut build = crate::support::precast_aot();
    build.args(["build", "--arch", "sm_89", "--key", "cast", "--out"]).arg(dir.path().join("bundle"));
    let message = fail(build.env("PRECAST_NVRTC", dir.path()), 1);
    assert!(message.contains(&format!("NVRTC at {} is 12.9: 13.0 or newer is needed", library.display())), "{message}");
    assert!(message.contains("precast-aot toolchain install"), "{message}");
}

/// What is opened to be locked is no FIFO, which would wait for its reader.
#[test]
fn nothing_but_a_file_is_locked_by_an_installation() {
    let case = Case::new(17 * 4);
    let lock = case.path("toolchain.lock");
    let install = || {
        let mut install = crate::support::precast_aot();
        install.args(["toolchain", "install"]).env("PRECAST_HOME", case.dir.path());
        fail(&mut install, 1)
    };
    let make: [fn(&std::path::Path); 3] = [
        |lock| drop(succeed(std::process::Command::new("mkfifo").arg(lock))),
        |lock| fs::create_dir(lock).unwrap(),
        |lock| std::os::unix::fs::symlink("/dev/zero", lock).unwrap(),
    ];
    for make in make {
        make(&lock);
        let message = install();
        let expected = format!("cannot lock {}: ", lock.display());
        assert!(message.contains(&expected) && message.contains("Remove it: rm -r "), "{message}");
        let _ = fs::remove_file(&lock).or_else(|_| fs::remove_dir(&lock));
    }
}

#[test]
fn usage_errors_exit_with_two() {
    for arguments in [&["distill", "--precision", "fp16"][..], &["distill", "--nonsense"], &["init", "--out", "x"]] {
        let status = precast().args(arguments).output().unwrap().status;
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
    let message = fail(precast().args(["distill", "--teacher", "x"]), 2);
    assert!(message.contains("--student is missing"), "{message}");
}

#[test]
fn layers_that_are_not_there_are_refused() {
    let case = Case::new(17 * 4);
    let out = case.path("new");
    let mut command = precast();
    command.arg("init").arg("--from").arg(&case.student).args(["--layers", "0,5", "--out"]).arg(&out);
    let message = fail(&mut command, 2);
    assert!(message.contains("layers 0 to 1"), "{message}");
    assert!(!out.exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever one byte of a safetensors file is changed to, and wherever it is cut: opened or refused.
    #[test]
    fn damaged_safetensors_never_panic(offset in 0usize..4000, value in any::<u8>(), cut in any::<bool>()) {
        let case = Case::new(17 * 4);
        let model = damaged(&case, "damaged", "model.safetensors", |mut bytes| {
            let offset = offset % bytes.len();
            if cut { bytes.truncate(offset) } else { bytes[offset] = value }
            bytes
        });
        let _ = precast::inputs::checkpoint::Checkpoint::open(&model);
    }
}
