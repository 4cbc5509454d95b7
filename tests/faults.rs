//! Kernels that fail in each phase of an on-policy run, under a stand-in for `libcuda` whose kernels are their
//! references: the run ends by itself, names phase and step, and goes on from its checkpoint to the bits of one that
//! nothing disturbed.

use crate::copies::Host;
use crate::support::prelude::*;

/// The kernel that fails, the phase that comes to it first, and the number of GPUs.
const FAULTS: [(&str, &str, &str); 4] = [
    ("rope_store", "prefill.64", "1"),
    ("sample__", "decode.64", "1"),
    ("sample_score", "micro", "1"),
    ("sample_score", "last", "2"),
];

fn run(host: &Host, out: &str, arguments: &str) -> Command {
    let shape = "--on-policy --prompt-tokens 3 --max-tokens 5 --grad-accum 2 --replicas 2";
    let mut command = host.distill(out, &format!("{shape} --checkpoint-every 1 --precision bf16 {arguments}"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Ends a run whose kernel fails in the third step of a run of two.
fn fails(host: &Host, phase: &str, child: Child) {
    let place = format!("phase `{phase}` of step 3");
    let continued = "The last checkpoint is checkpoint-2. Continue with:\n  ";
    ends(child, 4, [&*format!("{place}: "), " failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)", continued]);
    let outcome = &host.case.record(phase)["outcome"];
    assert_eq!(outcome["status"], "failed", "{phase}: {outcome}");
    assert!(outcome["reason"].as_str().unwrap().contains(&place), "{phase}: {outcome}");
    assert!(host.case.has(&format!("{phase}/checkpoint-2")));
}

#[test]
fn a_kernel_that_fails_ends_the_run_with_its_phase_and_step() {
    skip_if!(has_driver() || lacks_compiler());
    let host = &Host::new(&[("PRECAST_FAKE_GPUS", "2"), ("PRECAST_FAKE_INTEGRATED", "0")]);
    let again = |gpus: &str| format!("--resume --steps 3 --gpus {gpus}");
    run(host, "begun", "--steps 2").succeeds();
    let failing = FAULTS.map(|(kernel, phase, gpus)| {
        copy(&host.out("begun"), &host.out(phase));
        let mut run = run(host, phase, &again(gpus));
        (phase, run.env("PRECAST_FAKE_FAILS", kernel).spawn().unwrap())
    });
    // Together, for ranks wait to hear which of them has failed first.
    failing.into_iter().for_each(|(phase, child)| fails(host, phase, child));
    run(host, "whole", "--steps 3").succeeds();
    for (_, phase, gpus) in &FAULTS[2..] {
        run(host, phase, &again(gpus)).succeeds();
        assert!(host.case.results(phase) == host.case.results("whole"), "{phase}");
    }
}
