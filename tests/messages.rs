//! Snapshots of messages on files that begin with a byte order mark, and on bundles that open and do not verify.

use precast_fatbins::{Code, Digest, Manifest, encode};
use precast_kernels::KERNELS;

use crate::support::prelude::*;

const TEXT: &str = "the cat sat on the mat and the cat sat on the mat and the cat sat on the mat again";

/// Two models with one tokenizer.
fn case() -> Case {
    let case = Case::new(9 * 4);
    for model in ["teacher", "student"] {
        case.write(&format!("{model}/tokenizer.json"), tokenizer(TEXT).to_string());
    }
    case
}

/// A byte order mark before UTF-8 changes nothing.
#[test]
fn byte_order_marks_are_skipped() {
    let case = case();
    let marked = |bytes: &[u8]| [b"\xEF\xBB\xBF", bytes].concat();
    let lines = format!("{{\"text\": \"{TEXT}\"}}\n").repeat(2);
    let losses = |out: &str, arguments: String| {
        case.distill(out, [&arguments, "--steps 2 --seq-len 8 --precision fp32 --overwrite"]).succeeds();
        case.losses(out)
    };
    for (name, text) in [("text.txt", TEXT), ("lines.jsonl", &lines)] {
        case.write(name, text);
        case.write(&format!("marked-{name}"), marked(text.as_bytes()));
        let expected = losses("plain", format!("--data {name}"));
        assert_eq!(losses("marked", format!("--data marked-{name}")), expected, "{name}");
        for file in ["config.json", "tokenizer.json"] {
            let bytes = case.read(format!("student/{file}"));
            case.student_with(file, file, &marked(&bytes));
            assert_eq!(losses("model", format!("--data {name} --student {file}")), expected, "{name} {file}");
        }
        case.write("run.toml", marked(b"grad_accum = 1\n"));
        assert_eq!(losses("settings", format!("--data {name} --config run.toml")), expected, "{name}");
    }
    case.write("marked.json", marked(&case.read("student/config.json")));
    case.run("init --config marked.json --out init").succeeds();
    case.run("plan --arch sim --seq-len 8 --teacher marked.json --student marked.json").succeeds();
}

/// A bundle that opens but does not verify: its machine code is no cubin.
#[test]
fn a_bundle_that_is_refused_is_not_called_embedded() {
    skip_if!(has_bundle());
    let case = case();
    let keys = precast_plan::build_keys(&[shape(&tiny_config(&[]))]).on(precast_kernels::Arch::Sim);
    let mut manifest = Manifest::simulated(&KERNELS, &keys);
    let code = b"no machine code";
    let module = &mut manifest.modules[0];
    module.arch = "sm_90a".to_owned();
    let (entry, digest, bytes) = ("entry".to_owned(), Digest::of(code), code.len() as u64);
    let (registers, static_shared_bytes, stack_bytes, max_threads) = (32, 0, 0, 256);
    module.code = Some(Code { entry, digest, bytes, registers, static_shared_bytes, stack_bytes, max_threads });
    case.write("bad.bundle", encode(&manifest, |_| code));
    let distill = "distill --teacher teacher --student student --data data.bin --out out --seq-len 8";
    for command in [distill, "selftest --model student", "kernels", "eval --model student --seq-len 8 --data data.bin"]
    {
        let message = case.run([command, "--bundle bad.bundle"]).fails(3, "bad.bundle: ");
        assert!(!message.contains("embedded"), "{message}");
    }
    assert!(!case.has("out/run.json"));
}
