//! Same inputs, same bits: run to run, resumed or not, in one arena or in separate allocations.

use std::path::{Path, PathBuf};

use precast::inputs::checkpoint::Checkpoint;
use precast::inputs::data::MicroBatch;
use precast_plan::{Precision, Recompute};
use precast_runtime::Placement;
use precast_system::files::Existing;

use crate::support::{Case, config, distill, fail, metrics_of, session_placed, succeed, tiny_config};

fn case() -> Case {
    let teacher = tiny_config(&[("num_hidden_layers", 3.into())]);
    Case::of([&teacher, &tiny_config(&[])], 33 * 11)
}

impl Case {
    fn shuffled_run(&self, name: &str, arguments: &[&str]) -> PathBuf {
        let out = self.dir.path().join(name);
        succeed(&mut self.shuffled_command(&out, arguments));
        out
    }

    fn shuffled_command(&self, out: &Path, arguments: &[&str]) -> std::process::Command {
        let mut command = distill(&self.teacher, &self.student, &self.data, out);
        command.args(["--batch-size", "2", "--seq-len", "32", "--lr", "1e-2", "--shuffle", "true", "--seed", "7"]);
        command.args(arguments);
        command
    }
}

/// What must be the same: losses and norms to the last bit, and the weights.
fn results(out: &Path) -> (Vec<[Option<u64>; 4]>, Vec<u8>) {
    let bits = |value: Option<f64>| value.map(f64::to_bits);
    let records = metrics_of(out);
    let records = records.iter().map(|r| [bits(r.loss), bits(r.kd_loss), bits(r.ce_loss), bits(r.grad_norm)]);
    (records.collect(), std::fs::read(out.join("student/model.safetensors")).unwrap())
}

#[test]
fn two_runs_are_the_same_bits() {
    let case = case();
    for precision in ["fp32", "bf16"] {
        let arguments = ["--steps", "6", "--grad-accum", "2", "--precision", precision];
        let first = case.shuffled_run(&format!("{precision}-1"), &arguments);
        let second = case.shuffled_run(&format!("{precision}-2"), &arguments);
        assert!(results(&first) == results(&second), "{precision}");
    }
}

#[test]
fn recomputing_activations_changes_no_bit_and_takes_less_memory() {
    let case = case();
    let bytes = |out: &Path| metrics_of(out)[0].memory_bytes;
    for precision in ["fp32", "bf16"] {
        let arguments = ["--steps", "4", "--grad-accum", "2", "--precision", precision];
        let kept = case.shuffled_run(&format!("{precision}-kept"), &arguments);
        let toml = case.dir.path().join("run.toml");
        std::fs::write(&toml, "recompute = true\n").unwrap();
        let mut least = bytes(&kept);
        for (name, how) in [("norms", ["--config", toml.to_str().unwrap()]), ("blocks", ["--recompute", "blocks"])] {
            let recomputed = case.shuffled_run(&format!("{precision}-{name}"), &[&arguments[..], &how].concat());
            assert!(results(&kept) == results(&recomputed), "{precision} {name}");
            assert!(bytes(&recomputed) < least, "{precision} {name}: {} {least}", bytes(&recomputed));
            least = bytes(&recomputed);
        }
    }
}

/// What the backward pass recomputes may change between the parts of a run.
#[test]
fn a_resumed_run_may_recompute_something_else() {
    let case = case();
    let whole = case.shuffled_run("whole", &["--steps", "6", "--precision", "bf16"]);
    let arguments = ["--steps", "3", "--precision", "bf16", "--recompute", "blocks"];
    case.shuffled_run("parts", &arguments);
    let parts = case.shuffled_run("parts", &["--steps", "6", "--resume", "--precision", "bf16", "--recompute"]);
    assert!(results(&whole) == results(&parts));
}

#[test]
fn a_resumed_run_is_an_uninterrupted_one() {
    let case = case();
    for precision in ["fp32", "bf16"] {
        let whole = case.shuffled_run(&format!("{precision}-whole"), &["--steps", "6", "--precision", precision]);
        let parts = format!("{precision}-parts");
        case.shuffled_run(&parts, &["--steps", "4", "--checkpoint-every", "3", "--precision", precision]);
        let parts = case.shuffled_run(&parts, &["--steps", "6", "--resume", "--precision", precision]);
        assert!(results(&whole) == results(&parts), "{precision}");
    }
}

#[test]
fn a_checkpoint_continues_its_own_run_only() {
    let case = case();
    let out = case.shuffled_run("run", &["--steps", "2", "--precision", "fp32"]);
    let message = fail(&mut case.shuffled_command(&out, &["--steps", "4", "--resume", "--precision", "bf16"]), 2);
    assert!(message.contains("precision was fp32, is bf16"), "{message}");
    let message = fail(&mut case.shuffled_command(&out, &["--steps", "2", "--resume", "--precision", "fp32"]), 2);
    assert!(message.contains("raise --steps"), "{message}");
    let nowhere = case.dir.path().join("nowhere");
    let message = fail(&mut case.shuffled_command(&nowhere, &["--steps", "2", "--resume"]), 2);
    assert!(message.contains("no checkpoint at"), "{message}");
}

/// Weights that a file holds in the precision of the run are sent as they are, and widened on the device.
#[test]
fn weights_sent_narrow_are_those_sent_wide() {
    let case = case();
    let [narrow, wide] = ["narrow", "wide"].map(|name| case.dir.path().join(name));
    let json = case.dir.path().join("student.json");
    precast::programs::init::random(&json, None, 3, Precision::Bf16, &narrow, Existing::Keep).unwrap();
    precast::programs::init::from_layers(&narrow, &[0, 1], Precision::Fp32, &wide, Existing::Keep).unwrap();
    let sent = [&narrow, &wide].map(|student| {
        let config = config(&case.teacher, student, |options| options.arithmetic.precision = Precision::Bf16);
        let mut session = session_placed(&config, Placement::Arena);
        let sent_wide = session.sent_wide(&Checkpoint::open(student).unwrap());
        let all = session.plan.student.weights.all;
        let (master, weights) = (all.trained().unwrap().master, all.tensor);
        (!sent_wide, session.read(master).unwrap(), session.read(weights).unwrap())
    });
    assert!(sent[0].0 && !sent[1].0, "where they are sent");
    assert!(sent[0].1 == sent[1].1 && sent[0].2 == sent[1].2);
}

#[test]
fn sharing_and_saving_memory_change_no_bit() {
    let case = case();
    let config = config(&case.teacher, &case.student, |_| {});
    let rows: [&[u32]; 2] = [&[1; 17], &[2, 3, 4, 5, 6, 7, 8, 9]];
    let recomputing = |recompute| {
        let mut config = config.clone();
        config.arithmetic.recompute = recompute;
        config
    };
    let (norms, blocks) = (recomputing(Recompute::Norms), recomputing(Recompute::Blocks));
    let ways = [
        (&config, Placement::Arena),
        (&config, Placement::Separate),
        (&norms, Placement::Arena),
        (&blocks, Placement::Arena),
        (&blocks, Placement::Separate),
    ];
    let gradients = ways.map(|(config, placement)| {
        let mut session = session_placed(config, placement);
        // Twice: the second starts from memory that the first one left behind.
        for _ in 0..2 {
            session.micro(&MicroBatch::new(&rows, 16), 1.0 / 23.0, 0).unwrap();
        }
        let parameters = session.plan.student.weights.parameters.list.clone();
        parameters.iter().map(|parameter| session.read(session.trained_of(parameter).grad).unwrap()).collect::<Vec<_>>()
    });
    assert!(gradients.iter().all(|of_way| *of_way == gradients[0]));
}
