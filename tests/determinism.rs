//! Same inputs, same bits: run to run, resumed or not, in one arena or in separate allocations.

use precast::inputs::checkpoint::Checkpoint;
use precast::inputs::data::MicroBatch;
use precast_plan::{Precision, Recompute};
use precast_runtime::Placement;
use precast_system::files::Existing;

use crate::support::prelude::*;
use crate::support::{build_shim, session_placed};

fn case() -> Case {
    let teacher = tiny_config(&[("num_hidden_layers", 3.into())]);
    Case::of([&teacher, &tiny_config(&[])], 33 * 11)
}

fn run(case: &Case, out: &str, arguments: &str) {
    case.distill(out, ["--seq-len 32 --lr 1e-2 --shuffle true --seed 7", arguments]).succeeds();
}

/// What the backward pass recomputes may change between the parts of a run.
#[test]
fn a_resumed_run_may_recompute_something_else() {
    let case = case();
    run(&case, "whole", "--steps 6 --precision bf16");
    run(&case, "parts", "--steps 3 --precision bf16 --recompute blocks");
    case.write("run.toml", "recompute = true\n");
    run(&case, "parts", "--steps 6 --resume --precision bf16 --config run.toml");
    assert!(case.bits("whole") == case.bits("parts"));
}

/// Weights that a file holds in bf16 are sent as they are, and widened on the device: in int8 a layer at a time.
#[test]
fn weights_sent_narrow_are_those_sent_wide() {
    let case = case();
    let [narrow, wide] = ["narrow", "wide"].map(|name| case.path(name));
    let json = case.path("student.json");
    precast::programs::init::random(&json, None, 3, Precision::Bf16, &narrow, Existing::Keep).unwrap();
    precast::programs::init::from_layers(&narrow, &[0, 1], Precision::Fp32, &wide, Existing::Keep).unwrap();
    for precision in [Precision::Bf16, Precision::Int8] {
        let sent = [&narrow, &wide].map(|student| {
            let mut session = session(&config(&case.teacher, student, |it| it.arithmetic.precision = precision));
            let sent_wide = session.sent_wide(&Checkpoint::open(student).unwrap());
            let (plan, all) = (&session.plan.plan, session.plan.student.weights.all);
            let forms = ["int8", "scales", "columns.int8", "columns.scales"];
            let forms = forms.into_iter().filter_map(|form| plan.tensor(&format!("student.weights.{form}")));
            let tensors: Vec<_> = forms.chain([all.tensor, all.trained().unwrap().master]).collect();
            (sent_wide, tensors.into_iter().map(|tensor| session.read(tensor).unwrap()).collect::<Vec<_>>())
        });
        let [(of_narrow, narrow), (of_wide, wide)] = sent;
        assert!(!of_narrow && of_wide, "where they are sent");
        assert!(narrow == wide && narrow.len() == if precision == Precision::Int8 { 6 } else { 2 }, "{precision}");
        assert!(narrow.iter().all(|bytes| bytes.iter().any(|byte| *byte != 0)), "something has been sent");
    }
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
    let all = ways.map(|(config, placement)| {
        let mut session = session_placed(config, placement);
        // Twice: the second starts from memory that the first one left behind.
        for _ in 0..2 {
            session.micro(&MicroBatch::new(&rows, 16), 1.0 / 23.0, 0).unwrap();
        }
        gradients(&mut session)
    });
    assert!(all.iter().all(|of_way| *of_way == all[0]));
}

/// The driver gives memory as other programs have left it.
#[test]
fn what_device_memory_held_before_changes_no_bit() {
    skip_if!(skipped(is_sim(), "PRECAST_TEST_DEVICE names no GPU; simulated memory is poisoned"));
    let case = case();
    let shim = build_shim(case.dir.path());
    let students = ["0", "255"].map(|fill| {
        let log = case.path("log");
        let mut command = case.distill(fill, "--seq-len 32 --steps 3 --precision bf16");
        command.env("LD_PRELOAD", &shim).env("PRECAST_SHIM_FILLS", fill).env("PRECAST_SHIM_LOG", &log).succeeds();
        assert!(fs::read_to_string(&log).unwrap().lines().any(|call| call == "fill"), "memory was filled");
        case.bits(fill)
    });
    assert!(students[0] == students[1]);
}
