//! A row of a forward launch has the same bits whatever its neighbors, its place and the number of rows: two launches
//! that show it. Rows of attention are sequences, which their own test compares.

use std::mem::offset_of;

use crate::abi;
use crate::check::Case;
use crate::host::Buffer;
use crate::key::Key;

/// A forward operation.
struct Forward {
    op: &'static str,
    /// Byte offset of the number of rows in the parameter block.
    rows: usize,
    /// Rows that it is moved by, at least: into another tile of a GEMM.
    apart: usize,
}

macro_rules! forward {
    ($op:literal, $params:ident.$rows:ident, $apart:literal) => {
        Forward { op: $op, rows: offset_of!(abi::$params, $rows), apart: $apart }
    };
}

const FORWARD: [Forward; 23] = [
    forward!("attention.decode", attention_decode_params.rows, 3),
    forward!("embedding.fwd", embedding_fwd_params.tokens, 3),
    forward!("gated_norm.fwd", gated_norm_fwd_params.tokens, 3),
    forward!("gemm.fwd", gemm_fwd_params.m, 133),
    forward!("gemm.swiglu", gemm_swiglu_params.m, 133),
    forward!("head.ce", head_ce_params.tokens, 3),
    forward!("head.compare", head_compare_params.tokens, 3),
    forward!("head.distill", head_distill_params.tokens, 3),
    forward!("head.jsd", head_jsd_params.tokens, 3),
    forward!("head.nll", head_nll_params.tokens, 3),
    forward!("head.topk", head_topk_params.tokens, 3),
    forward!("int8.quantize", int8_quantize_params.rows, 3),
    forward!("lora.fwd_a", lora_fwd_a_params.m, 133),
    forward!("lora.fwd_b", lora_fwd_b_params.m, 133),
    forward!("output_gate.fwd", output_gate_fwd_params.tokens, 3),
    forward!("post_norm.fwd", post_norm_fwd_params.tokens, 3),
    forward!("qk_norm.fwd", qk_norm_fwd_params.tokens, 3),
    forward!("qk_norm.gated_fwd", qk_norm_gated_fwd_params.tokens, 3),
    forward!("rmsnorm.fwd", rmsnorm_fwd_params.tokens, 3),
    forward!("rope.fwd", rope_params.tokens, 3),
    forward!("sample", sample_params.rows, 3),
    forward!("sample.top", sample_top_params.rows, 3),
    forward!("swiglu.fwd", swiglu_fwd_params.tokens, 3),
];

/// Rows that are compared, and other rows behind them in the larger launch.
const COMPARED: usize = 2;
const BEHIND: usize = 1;

/// A few rows, and the same ones among many others.
pub struct RowPair {
    pub few: Case,
    pub many: Case,
    /// Place of the first of the few among the many.
    first: usize,
}

impl RowPair {
    /// Draws the launches, of these parameters but for the number of rows; none for an operation that is not forward.
    pub fn new(key: &Key, params: &[u8], seed: u64) -> Option<Self> {
        // Rows of experts are those of dense GEMMs, which has a test of its own.
        let forward = FORWARD.iter().find(|forward| forward.op == key.op() && !key.text().contains("experts="))?;
        let first = forward.apart;
        let of_rows = |rows: usize, seed| {
            let mut params = params.to_vec();
            params[forward.rows..][..4].copy_from_slice(&(rows as u32).to_ne_bytes());
            Case::new(key, &params, seed)
        };
        let few = of_rows(COMPARED, seed);
        let mut many = of_rows(first + COMPARED + BEHIND, seed + 1);
        for (operand, (from, to)) in few.operands.iter().zip(few.before.iter().zip(&mut many.before)) {
            if operand.access.reads() {
                let row = row_bytes(from, to);
                let start = if from.len() == to.len() { 0 } else { first * row };
                to[start..][..from.len()].copy_from_slice(from);
            }
        }
        Some(Self { few, many, first })
    }

    /// Returns an output of which a row has other bits after the larger launch than after the smaller one.
    pub fn differs(&self, few: &[Buffer], many: &[Buffer]) -> Option<&'static str> {
        let mut outputs = self.few.operands.iter().zip(few.iter().zip(many)).filter(|(it, _)| it.access.is_output());
        let differs = |few: &Buffer, many: &Buffer| few[..] != many[self.first * row_bytes(few, many)..][..few.len()];
        outputs.find(|(_, (few, many))| differs(few, many)).map(|(operand, _)| operand.name)
    }
}

/// Returns the bytes of a row of an operand; 0 if it is the same for all rows.
fn row_bytes(few: &Buffer, many: &Buffer) -> usize {
    if few.len() == many.len() { 0 } else { few.len() / COMPARED }
}
