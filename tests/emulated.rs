//! The programs built for another machine, under an emulator, beside those of this one: the same plans, kernels, memory and
//! tokens, losses as near as golden cases ask for, and runs that continue on either. `cargo xtask emulate` names them in
//! `PRECAST_TEST_EMULATED`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::golden;
use crate::support::{metrics_of, precast, precast_aot, root, skipped, succeed};

/// The directory of the emulated programs.
#[track_caller]
fn emulated() -> Option<PathBuf> {
    let programs = std::env::var_os("PRECAST_TEST_EMULATED").map(PathBuf::from);
    skipped(programs.is_none(), "PRECAST_TEST_EMULATED names no programs; `cargo xtask emulate` builds them");
    programs
}

#[test]
fn plans_kernels_and_memory_are_the_same() {
    let Some(programs) = emulated() else { return };
    let model = |name: &str| root().join(format!("aot/models/{name}.json"));
    let (teacher, student) = (model("qwen2.5-1.5b"), model("qwen2.5-0.5b"));
    for arguments in
        [&["--batch-size", "8"][..], &["--precision", "fp32"], &["--teacher-format", "stored", "--recompute", "blocks"]]
    {
        let plan = |program: Command| {
            let mut plan = program;
            plan.args(["plan", "--json", "--arch", "sm_121", "--seq-len", "1024"]).args(arguments);
            let text = succeed(plan.arg("--teacher").arg(&teacher).arg("--student").arg(&student));
            let json: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(json["kernels"].as_array().unwrap().len() > 20 && json["memory"].is_object(), "{text}");
            // Whether kernels are embedded is no part of a plan.
            let kernels = json["kernels"].as_array().unwrap().iter().map(|kernel| {
                let mut kernel = kernel.clone();
                kernel.as_object_mut().unwrap().remove("sha256");
                kernel
            });
            (kernels.collect::<Vec<_>>(), json["memory"].clone(), json["host_memory"].clone(), json["step"].clone())
        };
        assert_eq!(plan(Command::new(programs.join("precast"))), plan(precast()), "{arguments:?}");
    }
    let keys = |mut program: Command| succeed(program.args(["keys", "--arch", "sm_121", "--model"]).arg(&student));
    assert_eq!(keys(Command::new(programs.join("precast-aot"))), keys(precast_aot()));
}

/// Four steps of a golden case, and as many more from a checkpoint of the other machine.
#[test]
fn a_run_has_the_same_tokens_and_losses_and_continues_on_either() {
    let Some(programs) = emulated() else { return };
    let dir = tempfile::tempdir().unwrap();
    let emulated = || Command::new(programs.join("precast"));
    let run = |mut program: Command, out: &Path, arguments: &[&str]| {
        let case = golden::case(".");
        program.arg("distill").arg("--teacher").arg(case.join("teacher")).arg("--student").arg(case.join("student"));
        program.arg("--data").arg(case.join("tokens.bin")).arg("--out").arg(out);
        program.args([
            "--device",
            "sim",
            "--precision",
            "fp32",
            "--batch-size",
            "4",
            "--seq-len",
            "64",
            "--lr",
            "1e-3",
        ]);
        program.args(["--warmup", "0", "--schedule", "constant", "--weight-decay", "0.01", "--clip", "1"]);
        succeed(program.args(["--alpha", "0.5", "--temperature", "2", "--checkpoint-every", "2"]).args(arguments));
    };
    let [there, here] = ["emulated", "own"].map(|name| dir.path().join(name));
    run(emulated(), &there, &["--steps", "2"]);
    run(precast(), &here, &["--steps", "2"]);
    let state = |out: &Path, step: u32| -> serde_json::Value {
        let path = out.join(format!("checkpoint-{step}/state.json"));
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(state(&there, 2)["tokens_sha256"], state(&here, 2)["tokens_sha256"]);
    assert_eq!(state(&there, 2)["run"], state(&here, 2)["run"]);
    // Each goes on with what the other has written.
    run(precast(), &there, &["--steps", "4", "--resume"]);
    run(emulated(), &here, &["--steps", "4", "--resume"]);
    assert_eq!(state(&there, 4)["tokens_sha256"], state(&here, 4)["tokens_sha256"]);
    let (of_there, of_here) = (metrics_of(&there), metrics_of(&here));
    assert_eq!((of_there.len(), of_here.len()), (4, 4));
    for ((one, other), pytorch) in of_there.iter().zip(&of_here).zip(golden::trajectory_of(&golden::case("."))) {
        let values = [
            (one.loss, other.loss, pytorch.loss),
            (one.kd_loss, other.kd_loss, pytorch.kd_loss),
            (one.ce_loss, other.ce_loss, pytorch.ce_loss),
            (one.grad_norm, other.grad_norm, pytorch.grad_norm),
        ];
        for (one, other, expected) in values {
            for found in [one, other] {
                let difference = (found.unwrap() - expected).abs() / expected.abs();
                assert!(difference <= 2e-5, "{found:?}, PyTorch has {expected}");
            }
        }
    }
}
