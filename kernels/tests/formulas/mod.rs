//! Host references against their formulas in f64, written from the formulas alone, in every sample of each example
//! whose results are not rounded to bf16: what a kernel is checked with, its reference is. Gradients are differences of
//! the forward formula, so that a reference and a kernel that share a mistake do not agree with it.

mod advance;
mod attention;
mod bits;
pub mod calculus;
mod conv;
pub mod delta_rule;
mod delta_rule_bwd;
mod delta_rule_decode;
mod elements;
mod embedding;
mod gated;
mod gemm;
mod head;
mod kv;
pub mod launch;
mod lora;
mod moe;
mod nonlinear;
mod qk_norm;
mod qk_norm_gated;
mod rmsnorm;
mod rope;
mod sample;
mod sums;
pub mod swiglu;

use std::collections::BTreeSet;

use launch::Launch;
use precast_kernels::{Dtype, KERNELS, Key};

/// An operation and its check of a launch.
type Formula = (&'static str, fn(&mut Launch));

const FORMULAS: &[Formula] = &[
    ("adamw.update", elements::adamw),
    ("add", elements::add),
    ("attention.bwd", attention::bwd),
    ("attention.decode", attention::decode),
    ("attention.delta", attention::delta),
    ("attention.fwd", attention::fwd),
    ("bits.compare", bits::compare),
    ("cast", elements::cast),
    ("column_sum.finish", sums::column_sum_finish),
    ("column_sum.partial", sums::column_sum_partial),
    ("conv.bwd", conv::bwd),
    ("conv.decode", conv::decode),
    ("conv.dgrad", conv::dgrad),
    ("conv.fwd", conv::fwd),
    ("delta_rule.decode", delta_rule_decode::decode),
    ("delta_rule.fwd", delta_rule::fwd),
    ("delta_rule.solve", delta_rule::solve),
    ("delta_rule.bwd", delta_rule_bwd::bwd),
    ("delta_rule.state_bwd", delta_rule_bwd::state_bwd),
    ("embedding.bwd", embedding::bwd),
    ("embedding.fwd", embedding::fwd),
    ("fill", elements::fill),
    ("gated_norm.bwd", gated::norm_bwd),
    ("gated_norm.dgrad", gated::norm_dgrad),
    ("gated_norm.fwd", gated::norm_fwd),
    ("gemm.dgrad", gemm::dgrad),
    ("gemm.fwd", gemm::fwd),
    ("gemm.swiglu", gemm::swiglu),
    ("gemm.wgrad", gemm::wgrad),
    ("grad_distance.partial", sums::grad_distance_partial),
    ("grad_norm.finish", sums::grad_norm_finish),
    ("grad_norm.partial", sums::grad_norm_partial),
    ("head.ce", head::ce),
    ("head.compare", head::compare),
    ("head.distill", head::distill),
    ("head.jsd", head::jsd),
    ("head.metrics", head::metrics),
    ("head.nll", head::nll),
    ("head.topk", head::topk),
    ("kv.store", kv::store),
    ("lora.dgrad_a", lora::dgrad_a),
    ("lora.dgrad_b", lora::dgrad_b),
    ("lora.fwd_a", lora::fwd_a),
    ("lora.fwd_b", lora::fwd_b),
    ("lora.wgrad", lora::wgrad),
    ("moe.combine", moe::combine),
    ("moe.permute", moe::permute),
    ("moe.route", moe::route),
    ("moe.sort", moe::sort),
    ("output_gate.bwd", gated::output_bwd),
    ("output_gate.fwd", gated::output_fwd),
    ("post_norm.fwd", rmsnorm::post),
    ("qk_norm.bwd", qk_norm::bwd),
    ("qk_norm.dgrad", qk_norm::dgrad),
    ("qk_norm.fwd", qk_norm::fwd),
    ("qk_norm.gated_bwd", qk_norm_gated::bwd),
    ("qk_norm.gated_dgrad", qk_norm_gated::dgrad),
    ("qk_norm.gated_fwd", qk_norm_gated::fwd),
    ("qk_norm.row_bwd", qk_norm::row_bwd),
    ("qk_norm.row_dgrad", qk_norm::row_dgrad),
    ("qk_norm.row_fwd", qk_norm::row_fwd),
    ("rmsnorm.bwd", rmsnorm::bwd),
    ("rmsnorm.dgrad", rmsnorm::dgrad),
    ("rmsnorm.fwd", rmsnorm::fwd),
    ("rope.bwd", rope::bwd),
    ("rope.fwd", rope::fwd),
    ("rope.store", rope::store),
    ("sample", sample::sample),
    ("sample.advance", advance::advance),
    ("sample.score", sample::score),
    ("sample.top", sample::top),
    ("scale", elements::scale),
    ("swiglu.bwd", swiglu::bwd),
    ("swiglu.fwd", swiglu::fwd),
];

/// Operations with a test of their own: `tests/blocks.rs` has ggml's values, `tests/quantize.rs` what makes them, and
/// `tests/int8.rs` the formula of what is in int8, also by other operations.
const ELSEWHERE: [&str; 4] = ["dequant", "fake_quant", "int8.columns", "int8.quantize"];

#[test]
fn every_reference_is_its_formula() {
    let here: BTreeSet<&str> = FORMULAS.iter().map(|(op, _)| *op).chain(ELSEWHERE).collect();
    for op in KERNELS.ops {
        assert!(here.contains(op.name), "{} has no formula here", op.name);
    }
    for (op, check) in FORMULAS.iter().copied() {
        let mut ways = BTreeSet::new();
        for key in plain(op) {
            for (sample, params) in key.kernel().samples().iter().enumerate() {
                for seed in 0..draws(&key, params) {
                    let mut launch = Launch::new(&key, sample, seed);
                    check(&mut launch);
                    ways.extend(launch.into_ways());
                }
            }
        }
        for (branch, way) in &ways {
            assert!(ways.contains(&(branch, !way)), "{op}: no launch has another `{branch}` than {way}");
        }
    }
}

/// Draws of a sample: what is drawn decides on branches, too, and small samples are to go all ways.
fn draws(key: &Key, params: &[u8]) -> u64 {
    let elements: u64 = key.kernel().operands(params).iter().map(|operand| operand.elems).sum();
    if elements < 10_000 { 4 } else { 1 }
}

/// The examples of an operation that are plain, and others as they are in f32: their branches are the same.
fn plain(op: &str) -> BTreeSet<Key> {
    let keys = KERNELS.examples().into_iter().filter(|key| key.op() == op);
    let keys = keys.flat_map(|key| KERNELS.parse(&key.text().replace("bf16", "f32")).into_iter().chain([key]));
    let keys: BTreeSet<Key> = keys.filter(is_plain).collect();
    assert!(!keys.is_empty(), "{op} has no example in f32");
    keys
}

/// True if nothing is rounded to bf16 or stored in blocks, so that results are the formula. A cast is its rounding.
fn is_plain(key: &Key) -> bool {
    let params = key.kernel().samples().pop().expect("a kernel has samples");
    let formats = key.kernel().operands(&params).into_iter().map(|operand| operand.format);
    key.op() == "cast" || formats.into_iter().all(|format| format == Dtype::F32 || format == Dtype::U32)
}
