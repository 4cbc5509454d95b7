//! The artifact as a user handles it: published on a full disk, signed, taken by a trainer or refused, read by others.

use precast_kernels::Arch;

use crate::support::prelude::*;

#[test]
fn artifact_is_read_by_a_reader_written_from_its_specification() {
    skip_if!(lacks_compiler());
    let case = Case::empty();
    // A reader knows nothing of what kernels compute: a few do.
    let rows = Arch::GPUS.map(Arch::argument).join(",");
    case.aot(format!("build --arch {rows},sm_90_portable --key rmsnorm.fwd --key cast --out every.bundle")).succeeds();
    let mut reader = Command::new("python3");
    reader.arg(root().join("tests/read_bundle.py")).arg(case.path("every.bundle"));
    let listed = reader.succeeds();
    // What the program itself says of the same file.
    let mut coded: Vec<Value> = list(&case.aot("inspect --json every.bundle").json()["modules"]);
    coded.retain(|module| !module["code"].is_null());
    let row = |module: &Value| {
        let [arch, key, variant, digest] = ["/arch", "/key", "/variant", "/code/sha256"]
            .map(|field| module.pointer(field).and_then(Value::as_str).unwrap());
        format!("{arch} {key}[{variant}] {digest}")
    };
    let expected: Vec<String> = coded.iter().map(row).collect();
    assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
    for arch in Arch::GPUS.map(Arch::name).into_iter().chain(["sm_90_portable"]) {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{arch} "))), "{arch}");
    }
    // Ours reads each architecture as the compiler calls it.
    case.aot("verify every.bundle").succeeds();
    let mut bytes = case.read("every.bundle");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    case.write("every.bundle", bytes);
    assert_eq!(reader.ends().0, Some(1));
    // To publish it is an error that names it.
    let message = case.aot("publish --bundle every.bundle --to to").fails(3, "");
    assert!(message.starts_with("error: every.bundle: "), "{message}");
}

#[test]
fn a_trainer_with_a_trusted_key_refuses_what_it_did_not_sign() {
    skip_if!(lacks_compiler());
    let case = Case::golden("made-qwen2");
    // The simulated GPU's kernels are enough to be signed; they lack the model's, which is seen after the signature.
    let bundle = case.write("empty.bundle", simulated(&[])).display().to_string();
    for key in ["good", "other"] {
        case.aot(["sign --new-key --key", key]).succeeds();
    }
    let run = |key: &str, exit_code: i32| {
        let mut command = case.distill("out", ["--device sim --steps 1 --bundle", &bundle]);
        let key = if key.is_empty() { String::new() } else { case.path(key).display().to_string() };
        let message = case.anonymous(&command.env("PRECAST_TRUSTED_KEY", key).fails(exit_code, ""));
        // What is said of models and data is not of the bundle.
        let of_inputs = |line: &&str| {
            ["note: neither model", "note: the teacher's", "note: data: ", "note: the run takes", "note: a step takes"]
                .iter()
                .any(|start| line.starts_with(start))
        };
        message.lines().filter(|line| !of_inputs(line)).map(|line| format!("{line}\n")).collect::<String>()
    };
    let mut messages = vec![run("good.pub", 3)];
    case.aot("sign empty.bundle --key good").succeeds();
    // Signed by the trusted key, it is read, and lacks every kernel.
    let lacking = run("good.pub", 3);
    assert!(lacking.contains("holds nothing") && !lacking.contains("note:"), "{lacking}");
    let refused = run("other.pub", 3);
    assert!(refused.contains("a key other than the trusted"), "{refused}");
    messages.push(run("", 3).lines().next().unwrap_or_default().to_owned());
    let mut altered = case.read("empty.bundle");
    altered[100] ^= 1;
    case.write("empty.bundle", altered);
    messages.push(run("good.pub", 3));
    insta::assert_snapshot!(messages.join("\n"));
    assert!(!case.has("out") || case.names("out").is_empty());
}
