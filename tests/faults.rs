//! Kernels that fail in each phase of an on-policy run, under a stand-in for `libcuda` whose kernels are their references: the run
//! ends by itself, names phase and step, and goes on from its checkpoint to the bits of one that nothing disturbed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::copies::Host;
use crate::on_policy::results;
use crate::support::{copy, end, has_driver, lacks_compiler, names_in, run_record, succeed};

/// Tokens of prompts and of completions, by which sequences are in whole, half or quarter micro-batches of 16 tokens; and the
/// kernel that fails, the phase that comes to it first, and the number of GPUs.
type Faults = &'static [(&'static str, &'static str, &'static str)];
const SHAPES: [(&str, &str, Faults); 3] = [
    ("3", "12", &[("kv_store", "prefill", "1"), ("sample__", "decode.64", "1"), ("sample_score", "last", "2")]),
    ("3", "5", &[("sample_score", "micro.2", "1"), ("sample_score", "last.2", "2")]),
    ("2", "3", &[("sample_score", "micro.4", "1"), ("sample_score", "last.4", "2")]),
];

fn run(host: &Host, (prompt, completion): (&str, &str), out: &str, arguments: &[&str]) -> Command {
    let shape = ["--on-policy", "--prompt-tokens", prompt, "--max-tokens", completion, "--grad-accum", "2"];
    let common = ["--replicas", "2", "--checkpoint-every", "1", "--precision", "bf16"];
    let mut command = host.distill(out, &[&shape[..], &common, arguments].concat().join(" "));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Ends a run whose kernel fails in the third step of a run of two.
fn fails(out: &Path, phase: &str, child: Child) {
    let (code, message) = end(child);
    assert_eq!(code, Some(4), "{phase}: {message}");
    for said in [
        &format!("phase `{phase}` of step 3: "),
        " failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)",
        "The last checkpoint is checkpoint-2. Continue with:\n  ",
    ] {
        assert!(message.contains(said), "{phase}: {message}");
    }
    let outcome = &run_record(out)["outcome"];
    assert_eq!(outcome["status"], "failed", "{phase}: {outcome}");
    assert!(outcome["reason"].as_str().unwrap().contains(&format!("phase `{phase}` of step 3")), "{phase}: {outcome}");
    assert!(names_in(out).contains(&"checkpoint-2".to_owned()), "{phase}");
}

#[test]
fn a_kernel_that_fails_ends_the_run_with_its_phase_and_step() {
    if has_driver() || lacks_compiler() {
        return;
    }
    let host = Host::new(&[("PRECAST_FAKE_GPUS", "2"), ("PRECAST_FAKE_INTEGRATED", "0")]);
    let failing = |(prompt, completion, faults): (&'static str, &'static str, Faults)| {
        let begun = format!("begun-{completion}");
        succeed(&mut run(&host, (prompt, completion), &begun, &["--steps", "2"]));
        let host = &host;
        faults.iter().map(move |(kernel, phase, gpus)| {
            copy(&host.out(&begun), &host.out(phase));
            let again = ["--resume", "--steps", "3", "--gpus", gpus];
            let mut run = run(host, (prompt, completion), phase, &again);
            (*phase, run.env("PRECAST_FAKE_FAILS", kernel).spawn().unwrap())
        })
    };
    // Together, for ranks wait to hear which of them has failed first.
    let failing: Vec<(&str, Child)> = SHAPES.into_iter().flat_map(failing).collect();
    failing.into_iter().for_each(|(phase, child)| fails(&host.out(phase), phase, child));
    let (prompt, completion, faults) = SHAPES[1];
    succeed(&mut run(&host, (prompt, completion), "whole", &["--steps", "3"]));
    for (_, phase, gpus) in faults {
        succeed(&mut run(&host, (prompt, completion), phase, &["--resume", "--steps", "3", "--gpus", gpus]));
        assert!(results(&host.out(phase)) == results(&host.out("whole")), "{phase}");
    }
}

/// The rows of a phase that decodes are written for its replay, too: what it finds there is not what another phase has left.
#[test]
fn a_phase_that_hangs_while_it_decodes_is_replayed_to_its_node() {
    if has_driver() || lacks_compiler() {
        return;
    }
    let host = Host::new(&[("PRECAST_FAKE_INTEGRATED", "0")]);
    let hangs = [("kv_store", "prefill", "kv.store{"), ("sample__", "decode.64", "sample{")];
    let hanging = hangs.map(|(kernel, phase, key)| {
        let mut run = run(&host, ("3", "12"), phase, &["--steps", "1", "--patience", "2"]);
        (phase, key, run.env("PRECAST_FAKE_HANGS", kernel).spawn().unwrap())
    });
    for (phase, key, child) in hanging {
        let (code, message) = end(child);
        assert_eq!(code, Some(4), "{message}");
        assert!(message.contains(&format!("hangs: phase `{phase}` of step 1 has not ended")), "{message}");
        assert!(message.contains(".\nIt is node ") && message.contains(&format!("`, {key}")), "{message}");
    }
}
