//! The programs built for another machine, under an emulator, beside those of this one: the same plans, kernels, memory
//! and tokens, losses as near as golden cases ask for, and runs that continue on either. `cargo xtask emulate` names
//! them in
//! `PRECAST_TEST_EMULATED`.

use crate::golden::Golden;
use crate::support::prelude::*;

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
    for arguments in ["--batch-size 8", "--precision fp32", "--teacher-format stored --recompute blocks"] {
        let plan = |mut program: Command| {
            let models = "--teacher aot/models/qwen2.5-1.5b.json --student aot/models/qwen2.5-0.5b.json";
            let json = program.with(["plan --json --arch sm_121 --seq-len 1024", models, arguments]).json();
            assert!(list::<Value>(&json["kernels"]).len() > 20 && json["memory"].is_object(), "{json}");
            // Whether kernels are embedded is no part of a plan.
            let mut kernels: Vec<Value> = list(&json["kernels"]);
            kernels.iter_mut().for_each(|kernel| _ = kernel.as_object_mut().unwrap().remove("sha256"));
            (kernels, json["memory"].clone(), json["host_memory"].clone(), json["step"].clone())
        };
        assert_eq!(plan(Command::new(programs.join("precast"))), plan(precast()), "{arguments:?}");
    }
    let keys =
        |mut program: Command| program.with("keys --arch sm_121 --model aot/models/qwen2.5-0.5b.json").succeeds();
    assert_eq!(keys(Command::new(programs.join("precast-aot"))), keys(precast_aot()));
}

/// Four steps of a golden case, and as many more from a checkpoint of the other machine.
#[test]
fn a_run_has_the_same_tokens_and_losses_and_continues_on_either() {
    let Some(programs) = emulated() else { return };
    let golden = Golden::of("made-qwen2");
    let case = &golden.case;
    let emulated = || Command::new(programs.join("precast"));
    let run = |mut program: Command, out: &str, steps: &str| {
        let files = "distill --teacher golden/teacher --student golden/student --data golden/tokens.bin --device sim";
        let shape = "--precision fp32 --batch-size 4 --seq-len 64 --lr 1e-3 --warmup 0 --schedule constant";
        let loss = "--weight-decay 0.01 --clip 1 --alpha 0.5 --temperature 2 --checkpoint-every 2";
        program.current_dir(case.dir.path()).with([files, shape, loss, "--out", out, "--steps", steps]).succeeds();
    };
    let (there, here) = ("emulated", "own");
    run(emulated(), there, "2");
    run(precast(), here, "2");
    let state = |out: &str, step: u32| case.json(format!("{out}/checkpoint-{step}/state.json"));
    assert_eq!(state(there, 2)["tokens_sha256"], state(here, 2)["tokens_sha256"]);
    assert_eq!(state(there, 2)["run"], state(here, 2)["run"]);
    // Each goes on with what the other has written.
    run(precast(), there, "4 --resume");
    run(emulated(), here, "4 --resume");
    assert_eq!(state(there, 4)["tokens_sha256"], state(here, 4)["tokens_sha256"]);
    let (of_there, of_here) = (case.metrics(there), case.metrics(here));
    assert_eq!((of_there.len(), of_here.len()), (4, 4));
    for ((one, other), pytorch) in of_there.iter().zip(&of_here).zip(golden.trajectory("")) {
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
