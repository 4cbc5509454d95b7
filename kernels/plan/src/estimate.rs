//! Roofline of a plan: a lower bound on its time from peak figures, marked as an estimate.

use std::collections::BTreeMap;

use precast_kernels::Access;

use crate::category;
use crate::decoding::{bucket, decode_phase};
use crate::generation::GenerationPlan;
use crate::training::{MICRO, PASS, UPDATE};
use precast_core::Plan;
use precast_core::chips::Peak;
use precast_core::plan::{BufferId, Launch};

/// Returns a lower bound on a step's time, seconds: its arithmetic alone.
pub fn floor_seconds(plan: &Plan, grad_accum: u32, peak: &Peak) -> f64 {
    let phase = |name| plan.phase(name).launches().map(|launch| peak.arithmetic_seconds(launch)).sum::<f64>();
    let [least, _] = micros(plan);
    let pass = pass(plan).map_or(0.0, |(name, micros)| phase(name) / f64::from(micros));
    f64::from(grad_accum) * (phase(least) + pass) + phase(UPDATE)
}

/// Returns the phase of a teacher that computes several micro-batches at a time, and their number.
pub fn pass(plan: &Plan) -> Option<(&str, u32)> {
    plan.phases.iter().find_map(|phase| Some((&*phase.name, phase.name.strip_prefix(PASS)?.parse().ok()?)))
}

/// Returns the phases of micro-batches with the least and with the most arithmetic: of several teachers each has one.
pub fn micros(plan: &Plan) -> [&str; 2] {
    let is_micro = |name: &str| name.strip_prefix(MICRO).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let all = || plan.phases.iter().map(|phase| &*phase.name).filter(|name| is_micro(name));
    let flops = |name: &&str| flops(plan, name);
    [all().min_by_key(flops), all().max_by_key(flops)].map(|name| name.unwrap_or(MICRO))
}

/// Returns the phases of a step of so many micro-batches, each with how often it runs: of several teachers those of the
/// one with the most arithmetic.
pub fn of_step(plan: &Plan, micro_batches: u32) -> Vec<(&str, u32)> {
    let [_, micro] = micros(plan);
    let pass = pass(plan).map(|(name, micros)| (name, micro_batches / micros));
    [Some((micro, micro_batches)), pass, Some((UPDATE, 1))].into_iter().flatten().collect()
}

/// Returns the arithmetic of a step of so many micro-batches, FLOP.
pub fn step_flops(plan: &Plan, micro_batches: u32) -> u64 {
    of_step(plan, micro_batches).into_iter().map(|(phase, times)| u64::from(times) * flops(plan, phase)).sum()
}

/// Returns the time of such a step at the roofline, seconds.
pub fn step_seconds(plan: &Plan, micro_batches: u32, peak: &Peak) -> f64 {
    of_step(plan, micro_batches).into_iter().map(|(phase, times)| f64::from(times) * seconds(plan, phase, peak)).sum()
}

/// Returns the arithmetic of a phase, FLOP.
pub fn flops(plan: &Plan, phase: &str) -> u64 {
    plan.phase(phase).launches().map(Launch::flops).sum()
}

/// Returns the time of a phase at the roofline, seconds.
pub fn seconds(plan: &Plan, phase: &str, peak: &Peak) -> f64 {
    plan.phase(phase).launches().map(|launch| peak.seconds(launch)).sum()
}

/// Returns the bytes that a step of decoding must read: weights once, however many launches read them, and what layers
/// keep of `rows` rows, each of a sequence of `length` tokens.
pub fn decode_bytes(generation: &GenerationPlan, rows: u32, length: u32) -> u64 {
    let plan = &generation.plan;
    let mut weights: BTreeMap<(BufferId, u64), u64> = BTreeMap::new();
    for launch in plan.phase(&decode_phase(bucket(rows))).launches() {
        for (operand, buffer, offset) in launch.operands() {
            let category = plan.buffers[buffer.0 as usize].category;
            if operand.access == Access::Read && matches!(category, category::STUDENT_WEIGHTS | category::ADAPTERS) {
                // An embedding is looked up in a table of which some rows are read.
                let bytes = weights.entry((buffer, offset)).or_default();
                *bytes = operand.bytes().min(launch.bytes()).max(*bytes);
            }
        }
    }
    let cached: u64 = generation.model.caches.iter().map(|cache| cache.bytes_read(length)).sum();
    weights.values().sum::<u64>() + u64::from(rows) * cached
}

/// Returns a lower bound on the time of such a step, seconds: its bytes at the peak bandwidth or its arithmetic at the
/// peak rate, whichever is slower.
pub fn decode_seconds(generation: &GenerationPlan, (rows, length): (u32, u32), peak: &Peak) -> f64 {
    let phase = generation.plan.phase(&decode_phase(bucket(rows)));
    let arithmetic: f64 = phase.launches().map(|launch| peak.arithmetic_seconds(launch)).sum();
    arithmetic.max(decode_bytes(generation, rows, length) as f64 / peak.bytes_per_s)
}

#[cfg(test)]
mod tests {
    use precast_kernels::Arch;

    use super::*;
    use crate::{Adapters, DecodeRequest, Formats, ModelConfig, Precision, Sampling, Slots, Student};

    #[test]
    fn a_step_reads_its_weights_once_and_its_keys_and_values() {
        let json = |tied: bool| {
            let text = include_str!("../../../aot/models/smollm2-135m.json");
            text.replace("\"tie_word_embeddings\": true", &format!("\"tie_word_embeddings\": {tied}"))
        };
        let of = |tied: bool| {
            let config = ModelConfig::from_json(&json(tied)).unwrap();
            let student = Student { config: &config, formats: &Formats::dense(), adapters: &Adapters::none() };
            let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 0 };
            let slots = Slots { count: 100, seq_len: 64 };
            let request = DecodeRequest { slots, sampling };
            let plan = GenerationPlan::new(student, request, Precision::Bf16, Arch::Sm89).unwrap();
            (config, plan)
        };
        let (config, plan) = of(true);
        let weights: u64 = plan.model.weights.list().map(|(_, weight)| weight.tensor.bytes()).sum();
        let token = u64::from(2 * config.depth() * config.kv_heads * config.head_dim) * 2;
        assert_eq!(decode_bytes(&plan, 8, 0), weights);
        assert_eq!(decode_bytes(&plan, 100, 7), weights + 700 * token);
        // Of a table that is no head's, the rows that are looked up.
        let (config, apart) = of(false);
        let all: u64 = apart.model.weights.list().map(|(_, weight)| weight.tensor.bytes()).sum();
        let table = u64::from(config.vocab) * u64::from(config.hidden) * 2;
        let read = decode_bytes(&apart, 64, 0);
        assert!(
            (all - table..all - table + 64 * (4 * u64::from(config.hidden) + 8)).contains(&read),
            "{read} of {all}"
        );
    }
}
