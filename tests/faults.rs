//! Kernels that fail in each phase of an on-policy run, under a stand-in for `libcuda` whose kernels are their
//! references: the run ends by itself, names phase and step, and goes on from its checkpoint to the bits of one that
//! nothing disturbed.

use crate::copies::Host;
use crate::support::prelude::*;

/// Tokens of prompts and of completions, by which sequences are in whole, half or quarter micro-batches of 16 tokens;
/// and the kernel that fails, the phase that comes to it first, and the number of GPUs.
type Faults = &'static [(&'static str, &'static str, &'static str)];
const SHAPES: [(u32, u32, Faults); 3] = [
    (3, 12, &[("kv_store", "prefill", "1"), ("sample__", "decode.64", "1"), ("sample_score", "last", "2")]),
    (3, 5, &[("sample_score", "micro.2", "1"), ("sample_score", "last.2", "2")]),
    (2, 3, &[("sample_score", "micro.4", "1"), ("sample_score", "last.4", "2")]),
];

fn run(host: &Host, (prompt, completion): (u32, u32), out: &str, arguments: &str) -> Command {
    let shape = format!("--on-policy --prompt-tokens {prompt} --max-tokens {completion} --grad-accum 2 --replicas 2");
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
    let failing = |(prompt, completion, faults): (u32, u32, Faults)| {
        let begun = format!("begun-{completion}");
        run(host, (prompt, completion), &begun, "--steps 2").succeeds();
        faults.iter().map(move |(kernel, phase, gpus)| {
            copy(&host.out(&begun), &host.out(phase));
            let mut run = run(host, (prompt, completion), phase, &again(gpus));
            (*phase, run.env("PRECAST_FAKE_FAILS", kernel).spawn().unwrap())
        })
    };
    // Together, for ranks wait to hear which of them has failed first.
    let failing: Vec<(&str, Child)> = SHAPES.into_iter().flat_map(failing).collect();
    failing.into_iter().for_each(|(phase, child)| fails(host, phase, child));
    let (prompt, completion, faults) = SHAPES[1];
    run(host, (prompt, completion), "whole", "--steps 3").succeeds();
    for (_, phase, gpus) in faults {
        run(host, (prompt, completion), phase, &again(gpus)).succeeds();
        assert!(host.case.results(phase) == host.case.results("whole"), "{phase}");
    }
}
