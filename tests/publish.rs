//! The artifact as a user handles it: published on a full disk, signed, taken by a trainer or refused, read by others.

use std::fs;
use std::process::Command;

use crate::support::{distill, fail, fixture, lacks_compiler, precast_aot, root, succeed};

#[test]
fn artifact_published_past_a_limit_of_file_sizes_leaves_nothing() {
    if lacks_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("model.bundle");
    // The kernels that the trainer under test embeds: none is compiled again.
    let mut build = precast_aot();
    build.args(["build", "--arch", "sm_121", "--locked", "--model", "qwen2.5-0.5b", "--out"]).arg(&bundle);
    succeed(build.current_dir(root()));
    for name in ["layout", "layout.tar"] {
        // Files of this process cannot grow past 512 KiB: the lock fits, the bundle does not.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 512; exec \"$0\" \"$@\""]).arg(precast_aot().get_program());
        command.args(["publish", "--bundle"]).arg(&bundle).current_dir(root());
        let message = fail(command.arg("--to").arg(dir.path().join(name)), 5);
        assert!(message.contains("cannot write") && message.contains("(`ulimit -f`)"), "{message}");
        let mut left: Vec<String> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["model.bundle"]);
    }
}

#[test]
fn artifact_is_read_by_a_reader_written_from_its_specification() {
    if lacks_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("every.bundle");
    let mut build = precast_aot();
    // A reader knows nothing of what kernels compute: a few do.
    build.args(["build", "--arch", "sm_89,sm_90,sm_90_portable,sm_121", "--key", "rmsnorm.fwd", "--key", "cast"]);
    build.arg("--out");
    succeed(build.arg(&bundle).current_dir(root()));
    let reader = || {
        let mut command = Command::new("python3");
        command.arg(root().join("tests/read_bundle.py"));
        command
    };
    let listed = succeed(reader().arg(&bundle));
    // What the program itself says of the same file.
    let inspected = succeed(precast_aot().args(["inspect", "--json"]).arg(&bundle));
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    let coded = inspected["modules"].as_array().unwrap().iter().filter(|module| !module["code"].is_null());
    let row = |module: &serde_json::Value| {
        let [arch, key, variant, digest] = ["/arch", "/key", "/variant", "/code/sha256"]
            .map(|field| module.pointer(field).and_then(serde_json::Value::as_str).unwrap());
        format!("{arch} {key}[{variant}] {digest}")
    };
    let expected: Vec<String> = coded.map(row).collect();
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    for arch in ["sm_89", "sm_90a", "sm_90_portable", "sm_121"] {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{arch} "))), "{arch}");
    }
    // Ours reads each architecture as the compiler calls it.
    succeed(precast_aot().arg("verify").arg(&bundle));
    let mut bytes = fs::read(&bundle).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&bundle, bytes).unwrap();
    let output = reader().arg(&bundle).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    // To publish it is an error that names it.
    let mut publish = precast_aot();
    let message = fail(publish.args(["publish", "--bundle"]).arg(&bundle).arg("--to").arg(dir.path().join("to")), 3);
    assert!(message.starts_with(&format!("error: {}: ", bundle.display())), "{message}");
}

#[test]
fn a_trainer_with_a_trusted_key_refuses_what_it_did_not_sign() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    // The simulated GPU's kernels are enough to be signed; they lack the model's, which is seen after the signature.
    let bundle = path("empty.bundle");
    fs::write(&bundle, precast_fatbins::encode(&precast_fatbins::Manifest::simulated([]), |_| &[])).unwrap();
    if lacks_compiler() {
        return;
    }
    for key in ["good", "other"] {
        succeed(precast_aot().args(["sign", "--new-key", "--key"]).arg(path(key)));
    }
    let run = |key: &str, exit_code: i32| {
        let case = fixture("golden/qwen2-tied");
        let mut command = distill(&case.join("teacher"), &case.join("student"), &case.join("tokens.bin"), &path("out"));
        command.args(["--device", "sim", "--steps", "1", "--bundle"]).arg(&bundle);
        command
            .env("PRECAST_TRUSTED_KEY", if key.is_empty() { String::new() } else { path(key).display().to_string() });
        let message = fail(&mut command, exit_code).replace(&dir.path().display().to_string(), "DIR");
        // What is said of models and data is not of the bundle.
        let of_inputs = |line: &&str| {
            ["note: neither model", "note: the teacher's", "note: data: ", "note: the run takes", "note: a step takes"]
                .iter()
                .any(|start| line.starts_with(start))
        };
        message.lines().filter(|line| !of_inputs(line)).map(|line| format!("{line}\n")).collect::<String>()
    };
    let mut messages = vec![run("good.pub", 3)];
    succeed(precast_aot().arg("sign").arg(&bundle).arg("--key").arg(path("good")));
    // Signed by the trusted key, it is read, and lacks every kernel.
    let lacking = run("good.pub", 3);
    assert!(lacking.contains("holds nothing") && !lacking.contains("note:"), "{lacking}");
    let refused = run("other.pub", 3);
    assert!(refused.contains("a key other than the trusted"), "{refused}");
    messages.push(run("", 3).lines().next().unwrap_or_default().to_owned());
    let mut altered = fs::read(&bundle).unwrap();
    altered[100] ^= 1;
    fs::write(&bundle, altered).unwrap();
    messages.push(run("good.pub", 3));
    insta::assert_snapshot!(messages.join("\n"));
    assert!(!path("out").exists() || fs::read_dir(path("out")).unwrap().count() == 0);
}
