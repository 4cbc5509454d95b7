//! A student that trains in int8: near what bf16 gives, and the same bits however it is computed.

use precast::device::session::Session;
use precast::inputs::data::MicroBatch;
use precast::run::guard::LayerDistance;
use precast_plan::{Parameter, Precision, Recompute};

use crate::support::prelude::*;

const INT8: &str = "--precision int8 --checkpoint-every 0";

fn case() -> Case {
    Case::new(17 * 12)
}

/// A run of a few steps of the case, with a teacher.
fn run(case: &Case, name: &str, arguments: &str) -> Vec<f64> {
    case.distill(name, ["--steps 6 --lr 5e-3", arguments]).succeeds();
    case.losses(name)
}

/// Runs the six steps in int8 and returns their losses.
fn run_int8(case: &Case, name: &str, arguments: &str) -> Vec<f64> {
    run(case, name, &format!("{INT8} {arguments}"))
}

#[test]
fn a_student_learns_what_it_learns_in_bf16_with_other_bits() {
    let case = case();
    let bf16 = run(&case, "bf16", "--precision bf16 --checkpoint-every 0");
    let int8 = run_int8(&case, "int8", "");
    let config = case.record("int8")["config"].clone();
    assert_eq!((&config["precision"], &config["teacher_format"]), (&"int8".into(), &"bf16".into()));
    assert_eq!(int8.len(), 6);
    assert!(int8[5] < int8[0] && bf16[5] < bf16[0], "{int8:?} {bf16:?}");
    for (step, (int8, bf16)) in int8.iter().zip(&bf16).enumerate() {
        assert!(int8 != bf16 && (int8 - bf16).abs() < 0.02 * bf16, "step {step}: {int8} {bf16}");
    }
    // And without a teacher.
    let alone = |precision: &str| {
        case.train(precision, format!("--steps 3 --checkpoint-every 0 --overwrite --precision {precision}")).succeeds();
        case.losses(precision)
    };
    let (int8, bf16) = (alone("int8"), alone("bf16"));
    assert!(int8.iter().zip(&bf16).all(|(a, b)| a != b && (a - b).abs() < 0.02 * b), "{int8:?} {bf16:?}");
}

#[test]
fn sharing_and_saving_memory_change_no_bit() {
    let case = case();
    let none = run_int8(&case, "none", "");
    for (out, way) in ["--recompute norms", "--recompute blocks", "--separate-allocations"].into_iter().enumerate() {
        let out = out.to_string();
        assert_eq!(run_int8(&case, &out, way), none, "{way}");
        assert!(case.weights(out) == case.weights("none"), "{way}");
    }
}

/// Adapters on a base of 8 bits: it computes as the student that trains whole, and teaches where the teacher is to be
/// of 8 bits.
#[test]
fn a_frozen_base_is_quantized_once() {
    let case = case();
    let adapted = run_int8(&case, "adapted", "--lora-rank 4");
    // An adapter adds nothing at first.
    assert_eq!(adapted[0], run_int8(&case, "whole", "")[0]);
    assert_eq!(case.record("adapted")["config"]["student_format"], "int8");
    let by_base = |name: &str, format: &str| {
        let how = "--teacher student --steps 2 --lora-rank 4 --teacher-format";
        let printed = case.distill(name, [INT8, how, format]).succeeds();
        (printed, case.metrics(name)[0].kd_loss.unwrap())
    };
    let (printed, kd) = by_base("shared", "int8");
    assert!(printed.contains("int8 teacher, on the first batch: KL ") && kd == 0.0, "{kd} {printed}");
    let (_, kd) = by_base("exact", "auto");
    assert!(kd > 0.0 && kd < 0.05, "a teacher in bf16 is a copy of its own: {kd}");
}

#[test]
fn an_int8_teacher_and_held_out_data_go_with_it() {
    let case = case();
    token_file(case.dir.path(), "held-out.bin", 17 * 3, 96);
    let run = |out: &str, more: &str| case.distill(out, [INT8, "--steps 2 --teacher-format int8", more]).succeeds();
    run("out", "--eval-every 1 --eval-data held-out.bin");
    let scored = case.metrics("out");
    assert!(scored.iter().all(|step| step.held_out.as_ref().unwrap().eval_loss.unwrap() > 0.0));
    // The same steps as without.
    run("plain", "");
    assert!(case.weights("out") == case.weights("plain"));
}

/// The guard's bf16 gradients are those that a run in bf16 computes of the same micro-batch, its int8 ones are those of
/// the run; and it changes no bit of what follows.
#[test]
fn a_guard_compares_with_bf16_and_changes_no_bit() {
    let case = case();
    let rows: [&[u32]; 2] = [&[1; 17], &[2, 3, 4, 5, 6, 7, 8, 9]];
    let batch = MicroBatch::new(&rows, 16);
    let open = |precision, recompute| {
        session(&config(&case.teacher, &case.student, |options| {
            (options.arithmetic.precision, options.arithmetic.recompute) = (precision, recompute);
        }))
    };
    let gradients = |session: &mut Session| {
        let layers: Vec<Vec<Parameter>> = (0..2)
            .map(|layer| {
                let of = |one: &&Parameter| one.shape.len() == 2 && one.name.contains(&format!("layers.{layer}."));
                session.plan.student.weights.parameters.list.iter().filter(of).cloned().collect()
            })
            .collect();
        let mut of_layer = |layer: &Vec<Parameter>| -> Vec<f32> {
            layer.iter().flat_map(|one| floats(&session.read(session.trained_of(one).grad).unwrap())).collect()
        };
        layers.iter().map(&mut of_layer).collect::<Vec<_>>()
    };
    // One session at a time: a process has its GPU for one.
    let exact = {
        let mut exact = open(Precision::Bf16, Recompute::None);
        exact.micro(&batch, 1.0 / 23.0, 0).unwrap();
        gradients(&mut exact)
    };
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let guard = |session: &mut Session, step: u64| {
        let own = gradients(session);
        let sums = session.guard().unwrap();
        assert!(gradients(session) == own, "a guard reads them");
        assert_eq!(sums.len(), 2);
        for (layer, found) in sums.iter().enumerate().filter(|_| step == 0) {
            let (a, b) = (&own[layer], &exact[layer]);
            for (found, expected) in [(found.ab, dot(a, b)), (found.aa, dot(a, a)), (found.bb, dot(b, b))] {
                assert!((found - expected).abs() <= 1e-5 * dot(b, b), "{layer} {found} {expected}");
            }
            let distance = LayerDistance::of(*found);
            assert!(distance.is_within() && distance.apart().unwrap() > 1e-3, "{distance}");
        }
    };
    for recompute in Recompute::ALL {
        let [guarded, plain] = [true, false].map(|is_guarded| {
            let mut session = open(Precision::Int8, recompute);
            for step in 0..3 {
                session.micro(&batch, 1.0 / 23.0, 0).unwrap();
                if is_guarded {
                    guard(&mut session, step);
                }
                session.micro(&batch, 1.0 / 23.0, 1).unwrap();
                let ticket = session.update(step, 1e-2).unwrap();
                session.metrics(ticket).unwrap();
            }
            let master = session.plan.trained().trained().unwrap().master;
            session.read(master).unwrap()
        });
        assert!(guarded == plain, "{recompute}");
    }
}

/// A step whose gradient is not finite leaves all that launches read as it was.
#[test]
fn a_skipped_step_changes_no_form_of_the_weights() {
    let case = case();
    let mut session =
        session(&config(&case.teacher, &case.student, |options| options.arithmetic.precision = Precision::Int8));
    let batch = MicroBatch::new(&[&[1; 17][..], &[2; 17][..]], 16);
    let forms = |session: &mut Session| {
        let plan = &session.plan.plan;
        let own = plan.buffers.iter().filter(|one| one.is_persistent() && one.name.starts_with("student.weights"));
        let own: Vec<_> = own.map(|buffer| plan.tensor(&buffer.name).unwrap()).collect();
        own.into_iter().map(|tensor| session.read(tensor).unwrap()).collect::<Vec<_>>()
    };
    let before = forms(&mut session);
    assert_eq!(before.len(), 5, "rows and columns with their scales, and what is dense");
    let step = |session: &mut Session, loss_scale| {
        session.micro(&batch, loss_scale, 0).unwrap();
        let ticket = session.update(0, 1e-2).unwrap();
        session.metrics(ticket).unwrap().0.skipped
    };
    assert_eq!(step(&mut session, f32::INFINITY), 1);
    assert!(forms(&mut session) == before);
    assert_eq!(step(&mut session, 1.0 / 32.0), 0);
    assert!(forms(&mut session).iter().zip(&before).all(|(now, before)| now != before));
}
