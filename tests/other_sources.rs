//! Kernels of other sources under today's names: no command starts with them.

#[path = "../aot/tests/support/louder.rs"]
mod louder;

use std::fs;
use std::path::Path;
use std::process::Command;

use precast_aot::Arch;

use crate::support::{distill, fail, fixture, lacks_compiler, precast, precast_aot, root, succeed};

/// The commands that run kernels or list them, with a bundle.
fn commands(bundle: &Path, out: &Path) -> Vec<Command> {
    let case = fixture("golden/qwen2-tied");
    let (teacher, student, tokens) = (case.join("teacher"), case.join("student"), case.join("tokens.bin"));
    let command = |arguments: &[&str]| {
        let mut command = precast();
        command.args(arguments);
        command
    };
    let mut bench = command(&["bench", "--device", "sim"]);
    bench.arg("--teacher").arg(&teacher).arg("--student").arg(&student).arg("--out").arg(out.join("bench"));
    let mut eval = command(&["eval", "--device", "sim"]);
    eval.arg("--model").arg(&student).arg("--data").arg(&tokens);
    let mut plan = command(&["plan", "--arch", "sm_89"]);
    plan.arg("--teacher").arg(&teacher).arg("--student").arg(&student);
    let mut commands = vec![
        distill(&teacher, &student, &tokens, &out.join("run")),
        eval,
        bench,
        plan,
        command(&["selftest", "--device", "sim"]),
        command(&["kernels"]),
    ];
    commands.iter_mut().for_each(|command| _ = command.arg("--bundle").arg(bundle));
    commands
}

/// Every command refuses a bundle and names `stale`.
fn refused(bundle: &Path, stale: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    for mut command in commands(bundle, dir.path()) {
        let message = fail(&mut command, 3);
        for module in stale {
            assert!(message.contains(&format!("STALE   {module}\n")), "{message}");
        }
        assert!(message.contains("precast-aot build --model "), "{message}");
    }
    let mut doctor = precast();
    let output = doctor.args(["doctor", "--device", "sim", "--bundle"]).arg(bundle).output().unwrap();
    let findings = String::from_utf8(output.stdout).unwrap();
    let bad = findings.lines().find(|line| line.starts_with("BAD  bundle")).expect(&findings);
    assert!(bad.contains("not made from this program's sources") && findings.contains(stale[0]), "{findings}");
    for name in ["run", "bench"] {
        let directory = dir.path().join(name);
        assert!(!directory.exists() || fs::read_dir(directory).unwrap().count() == 0);
    }
}

#[test]
fn a_bundle_whose_swiglu_multiplies_is_refused_by_every_command() {
    if lacks_compiler() {
        return;
    }
    let (_, [today, other]) = louder::built(&root().join("tests/models/tiny.json"), Arch::Sm121);
    let dir = tempfile::tempdir().unwrap();
    let [today, other] = [("today", today), ("other", other)].map(|(name, built)| {
        let path = dir.path().join(name);
        fs::write(&path, built.encode()).unwrap();
        path
    });
    succeed(precast().arg("kernels").arg("--bundle").arg(&today));
    refused(&other, &["swiglu.fwd{x=bf16}[threads=128] sm_121", "swiglu.fwd{x=f32}[threads=128] sm_121"]);
}

#[test]
fn a_signed_bundle_of_an_older_version_is_refused_by_every_command() {
    let older = root().join("fatbins/tests/fixtures/older");
    let bundle = older.join("older.bundle");
    refused(&bundle, &["swiglu.fwd{x=bf16}[threads=128] sm_89"]);
    // The run's models stand in the remedy.
    let case = fixture("golden/qwen2-tied");
    let dir = tempfile::tempdir().unwrap();
    let mut command =
        distill(&case.join("teacher"), &case.join("student"), &case.join("tokens.bin"), &dir.path().join("out"));
    command.arg("--bundle").arg(&bundle).arg("--trusted-key").arg(older.join("older.pub"));
    let message = fail(&mut command, 3).replace(&case.display().to_string(), "CASE");
    let message = message.replace(&root().display().to_string(), "ROOT");
    insta::assert_snapshot!(message);
    if !lacks_compiler() {
        let key = older.join("older.pub");
        let message = fail(precast_aot().arg("verify").arg(&bundle).arg("--trusted-key").arg(key), 3);
        assert!(message.contains("STALE   swiglu.fwd{x=bf16}[threads=128] sm_89"), "{message}");
        for what in ["inspect", "diff"] {
            let mut command = precast_aot();
            command.arg(what).arg(&bundle);
            if what == "diff" {
                command.arg(&bundle);
            }
            assert!(succeed(&mut command).contains(if what == "diff" { "0 modules differ" } else { "swiglu.fwd" }));
        }
    }
}
