//! Every golden case in fp32 and in bf16: each step's losses and norm, the first step's gradients and logits, and the
//! result.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use precast::inputs::data::{Chunk, Packing};
use precast::run::step::StepRecord;
use precast_plan::{Precision, Recompute};

use crate::golden::{Golden, Reference, Spread, differences, largest, named_gradients, of_data};
use crate::support::logits_adapted;
use crate::support::prelude::*;

/// Cases, each with another choice of what is computed again; those of packed rows with every one.
pub fn recomputed() -> impl Iterator<Item = (Golden, Vec<Recompute>)> {
    of_data().zip(Recompute::ALL.into_iter().cycle()).map(|(golden, one)| {
        let all = if golden.settings.packing == Packing::Rows { Recompute::ALL.to_vec() } else { vec![one] };
        (golden, all)
    })
}

/// Bounds the distance of weights after the last step. It is looser than the losses' gate, because Adam divides by the
/// root of v and so amplifies rounding where a gradient is nearly zero: a key's bias was 2.6e-4 apart on an H200.
pub const RESULT: f64 = 5e-4;

#[test]
fn steps_and_results_are_those_of_pytorch_in_fp32() {
    for (golden, recompute) in recomputed() {
        let name = &golden.name;
        for recompute in recompute {
            let records = golden.run(format!("--precision fp32 --recompute {recompute}"));
            let worst = differences(&records, &golden.trajectory(""));
            assert!(largest(worst) <= 2e-5, "{name}, {recompute}: {worst:?}");
            eprintln!("{name}, fp32, {recompute}: {} steps within {:.1e}", records.len(), largest(worst));
            if let Some(distance) = golden.result() {
                assert!(distance <= RESULT, "{name}: its weights are {distance:e} apart");
                eprintln!("{name}, fp32: final weights within {distance:.1e}");
            }
        }
    }
}

#[test]
fn steps_are_those_of_pytorch_in_bf16() {
    for (golden, recompute) in recomputed() {
        for recompute in recompute {
            let records = golden.run(format!("--precision bf16 --recompute {recompute}"));
            within_bf16(&golden, &records, &golden.trajectory(""));
        }
    }
}

/// Cases with steps whose norm is ill-conditioned: the largest standard deviation that roundings of bf16 give one, and
/// the farthest first gradient, by `rounded.py spread`. Whatever is rounded where, one run in three or more is off by
/// more than 1e-2 there; of `smollm3` every one. Of `qwen35` and its adapter the gradient
/// of a decay is the farthest that it is from itself in fp32 in transformers, of 12 runs whose weights are moved by
/// half a unit in the last place of bf16.
const SENSITIVE: [(&str, RangeInclusive<usize>, f64, f64); 5] = [
    ("qwen3-tied", 15..=15, 1.1e-2, 0.0),
    ("mistral-window", 1..=12, 6.0e-3, 7.6e-2),
    ("smollm3", 1..=12, 1.4e-2, 9.1e-2),
    ("qwen35", 1..=12, 0.0, 8.9e-2),
    ("qwen35-lora", 1..=12, 0.0, 7.4e-2),
];

fn sensitive(name: &str) -> Option<&'static (&'static str, RangeInclusive<usize>, f64, f64)> {
    SENSITIVE.iter().find(|(case, ..)| *case == name)
}

pub fn within_bf16(golden: &Golden, records: &[StepRecord], reference: &[Reference]) {
    let name = &golden.name;
    assert_eq!(records.len(), reference.len(), "{name}");
    // All of the loss is the divergence then, and as far off: in float64 with the roundings of bf16, `jsd-half` comes
    // to 9.6e-4 to 1.07e-3 by `rounded.py spread`.
    let of_loss = if golden.settings.alpha == Some(1.0) { 3e-3 } else { 1e-3 };
    for (index, (record, reference)) in records.iter().zip(reference).enumerate() {
        let of_step = sensitive(name).filter(|(_, steps, ..)| steps.contains(&(index + 1)));
        let norm = of_step.map_or(1e-2, |(_, _, spread, _)| f64::max(1e-2, 3.0 * spread));
        let Spread { loss, kd_loss, ce_loss, grad_norm } = reference.spread;
        let gates = [
            ("loss", of_loss, loss),
            ("kd_loss", 3e-3, kd_loss),
            ("ce_loss", 1e-3, ce_loss),
            ("grad_norm", norm, grad_norm),
        ];
        let gates = gates.map(|(what, gate, spread)| (what, f64::max(gate, 3.0 * spread)));
        let worst = differences(std::slice::from_ref(record), std::slice::from_ref(reference));
        for (difference, (what, gate)) in worst.into_iter().zip(gates) {
            assert!(difference <= gate, "{name}, step {}, {what}: {difference:e} > {gate:e}", index + 1);
        }
    }
    eprintln!("{name}: {} steps within {:.1e}", records.len(), largest(differences(records, reference)));
}

/// And what is computed again changes no bit of them.
#[test]
fn first_gradients_are_those_of_pytorch() {
    for (golden, recompute) in recomputed() {
        let (name, Some(expected)) = (&golden.name, golden.kept("step0.safetensors")) else { continue };
        let choices: BTreeSet<Recompute> = match recompute[..] {
            [one] => [Recompute::None, one.max(Recompute::Norms)].into(),
            _ => recompute.into_iter().collect(),
        };
        let names = expected.tensors().names().iter().filter(|name| name.starts_with("grad.")).count();
        let bf16 = sensitive(name).map_or(6e-2, |(.., farthest)| farthest.max(6e-2));
        for (precision, gate) in [(Precision::Fp32, 2e-5), (Precision::Bf16, bf16)] {
            let step = |recompute: &Recompute| named_gradients(&mut golden.first_step(precision, *recompute));
            let all: Vec<_> = choices.iter().map(step).collect();
            assert!(all.iter().all(|of_one| *of_one == all[0]), "{name}, {precision}: recomputing changes bits");
            // A case of others may keep some of them.
            let kept: Vec<_> = all[0].iter().filter(|(tensor, _)| expected.has(tensor)).collect();
            assert_eq!(kept.len(), names, "{name}");
            let distances = kept.iter().map(|(tensor, found)| (expected.distance(tensor, found), tensor));
            // Of the gated delta rule those of step sizes and decays, which are sums that cancel, are far alone.
            let of_gates =
                |tensor: &str| ["A_log", "dt_bias", "in_proj_a", "in_proj_b"].iter().any(|part| tensor.contains(part));
            let gate_of =
                |tensor: &str| if name.starts_with("qwen35") && !of_gates(tensor) { gate.min(6e-2) } else { gate };
            for (distance, tensor) in distances.clone() {
                let gate = gate_of(tensor);
                assert!(distance <= gate, "{name}, {precision}, {tensor}: {distance:e} > {gate:e}");
            }
            let worst = distances.map(|(distance, _)| distance).fold(0.0, f64::max);
            eprintln!("{name}, {precision}: {names} first gradients within {worst:.1e}");
        }
    }
}

#[test]
fn logits_are_those_of_pytorch_in_fp32() {
    for golden in of_data() {
        let (name, ids, Some(expected)) = (&golden.name, golden.ids(), golden.kept("step0.safetensors")) else {
            continue;
        };
        let alone = logits(&golden.case.student, &ids);
        let columns = alone.len() / ids.len();
        if let Some(adapter) = golden.adapter() {
            let student = logits_adapted(&golden.case.student, Some(&adapter), &ids);
            assert!(expected.distance("student_logits", &student) <= 2e-5, "{name}");
            assert!(expected.distance("student_logits", &alone) > 1e-2, "{name}: the adapter does nothing");
        } else {
            assert!(expected.distance("student_logits", &alone) <= 2e-5, "{name}");
        }
        if let Some(teacher) = golden.teacher() {
            // The reference holds the student's columns of a wider teacher.
            let whole = logits(teacher, &ids);
            let rows = whole.chunks(whole.len() / ids.len());
            let teacher: Vec<f32> = rows.flat_map(|row| &row[..columns]).copied().collect();
            assert!(expected.distance("teacher_logits", &teacher) <= 2e-5, "{name}");
        }
        eprintln!("{name}: logits");
    }
}

/// Micro-batches of rows that count for unequal numbers of tokens: the mean is over the step.
#[test]
fn masked_rows_are_counted_over_the_step() {
    let golden = Golden::of("made-mask");
    let counted = |rows: &[Chunk]| rows.iter().map(Chunk::counted).sum::<usize>();
    let counts: Vec<usize> = golden.steps()[0].chunks(golden.settings.B as usize).map(counted).collect();
    assert!(counts.len() == 2 && counts[0] != counts[1], "{counts:?}");
}
