//! Kernels of other sources under today's names: no command starts with them.

#[path = "../aot/models/tests/support/louder.rs"]
mod louder;

use precast_aot::Arch;

use crate::support::prelude::*;

/// A golden case's models and tokens, and a bundle beside them.
fn case(bundle: impl AsRef<[u8]>) -> Case {
    let case = Case::golden("made-qwen2");
    case.write("bundle", bundle);
    case
}

/// The commands that run kernels or list them refuse a bundle and say `reasons`.
fn refused(case: &Case, reasons: &[impl AsRef<str>]) {
    const PAIR: &str = "--teacher golden/teacher --student golden/student --seq-len 64";
    for command in [
        format!("distill {PAIR} --data golden/tokens.bin --out run"),
        "eval --device sim --model golden/student --data golden/tokens.bin".to_owned(),
        format!("bench step --device sim {PAIR} --out bench"),
        format!("plan --arch sm_89 {PAIR}"),
        "selftest --device sim".to_owned(),
        "kernels".to_owned(),
    ] {
        let said: Vec<&str> = reasons.iter().map(AsRef::as_ref).chain(["precast-aot build --model "]).collect();
        case.run([&command, "--bundle bundle"]).fails(3, said);
    }
    let (_, findings, _) = case.run("doctor --device sim --bundle bundle").ends();
    let is_bad = findings.lines().any(|line| line.starts_with("BAD  bundle"));
    assert!(is_bad && findings.contains(reasons[0].as_ref().trim_end()), "{findings}");
    for name in ["run", "bench"] {
        assert!(!case.has(name) || case.names(name).is_empty());
    }
}

#[test]
fn a_bundle_whose_swiglu_multiplies_is_refused_by_every_command() {
    skip_if!(lacks_compiler());
    let (_, [today, other]) = louder::built(&root().join("tests/models/tiny.json"), Arch::Sm121);
    let case = case(other.encode());
    case.write("today", today.encode());
    case.run("kernels --bundle today").succeeds();
    refused(&case, &["bf16", "f32"].map(|x| format!("STALE   swiglu.fwd{{x={x}}}[threads=128] sm_121\n")));
}

#[test]
fn a_signed_bundle_of_an_older_version_is_refused_everywhere() {
    skip_if!(has_bundle());
    let older = root().join("fatbins/tests/fixtures/older");
    let case = case(fs::read(older.join("older.bundle")).unwrap());
    for name in ["older.bundle.minisig", "older.pub"] {
        let _ = fs::copy(older.join(name), case.path(name.replace("older.bundle", "bundle")));
    }
    refused(&case, &["the bundle has format 1"]);
    // The run's models stand in the remedy.
    let models = "--teacher golden/teacher --student golden/student --data golden/tokens.bin --seq-len 64 --out out";
    let message = case.run(["distill --bundle bundle --trusted-key older.pub", models]).fails(3, "");
    insta::assert_snapshot!(message);
    skip_if!(lacks_compiler());
    let aot = |line: &str| {
        let mut aot = precast_aot();
        aot.with(line).current_dir(case.dir.path());
        aot
    };
    aot("verify bundle --trusted-key older.pub").fails(3, "the bundle has format 1");
    assert!(aot("inspect bundle").succeeds().contains("swiglu.fwd"));
    assert!(aot("diff bundle bundle").succeeds().contains("0 modules differ"));
}
