//! Parameter blocks and kernels, of the C headers of `kernels/src`.
//!
//! Not edited by hand: `cargo xtask abi` regenerates it.
// Headers: 8cc39446042dc00395bae5bacb6f444e4331b548fb388c7ef7e50d16c0a1d055
// Body: 3a7830efd7f8821e3d93756df07dbbaaf08ff6d6e73cdd1a4d7162e41a69fc94
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, unused_imports)]

use std::mem::offset_of;

use super::Out;
pub use precast_core::abi::{address, tensor_map};
use precast_core::bytemuck::{Pod, Zeroable};
use precast_core::{Block, Content, Dtype, Format, Kernel, Op, Operand, Scalar, arguments, key, operand};

pub const MASKED_TOKEN: u32 = 4294967295;

pub const IDLE_SLOT: u32 = 4294967295;

pub const MOST_KEPT: u32 = 1024;

pub const NO_TOKEN: u32 = 4294967295;

/// One micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct micro_scalars {
    /// uniform(0.1, 1.0): 1 / (counted tokens over all micro-batches of the step)
    pub loss_scale: f32,
    /// below(2): 0 in the first micro-batch of a step: gradients are overwritten, not added to
    pub accumulate: u32,
}

/// One optimizer update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct update_scalars {
    /// 1e-3
    pub lr: f32,
    /// uniform(0.1, 1.0): 1 - beta1^step
    pub bias_correction1: f32,
    /// uniform(0.1, 1.0): 1 - beta2^step
    pub bias_correction2: f32,
    pub reserved: u32,
}

/// Metrics of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct step_metrics {
    /// 1.0: mean over counted tokens, nats, without T^2
    pub kd_loss: f32,
    /// 2.0: mean over counted tokens, nats
    pub ce_loss: f32,
    /// 3.0: L2 norm over all gradients, before clipping
    pub grad_norm: f32,
    /// uniform(0.1, 1.0): what gradients are multiplied by
    pub clip_scale: f32,
    /// 0: 1 if the norm was not finite and the weights were left alone
    pub skipped: u32,
    pub reserved: u32,
}

/// Parameter block of `adamw.update`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct adamw_params {
    /// `[n]` f32, read
    pub grad: address,
    /// update_scalars, read
    pub update: address,
    /// step_metrics, read: `clip_scale`, `skipped`
    pub metrics: address,
    /// `[n]` f32, update
    pub master: address,
    /// `[n]` f32, update
    pub m: address,
    /// `[n]` f32, update, uniform(0.0, 1.0)
    pub v: address,
    /// `[n]` bf16, update if w == bf16: copy of `master`
    pub weights: address,
    /// elements
    pub n: u64,
    /// elements that decay, the first ones: matrices lie before vectors
    pub decayed: u64,
    pub beta1: f32,
    pub beta2: f32,
    pub eps: f32,
    pub weight_decay: f32,
}

arguments! {
    AdamwArgs of adamw_params {
        operands { grad, update, metrics, master, m, v }
        optional { weights }
        scalars { n: u64, decayed: u64, beta1: f32, beta2: f32, eps: f32, weight_decay: f32 }
    }
}

key! {
    /// Updates the master weights; with `w=bf16` also writes the working copy.
    pub struct AdamwUpdate = "adamw.update" { w: Dtype }
}

impl Kernel for AdamwUpdate {
    type Params = adamw_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let operands = [
            Some(operand!(Read Self::Params, grad: Dtype::F32, n)),
            Some(operand!(Read Self::Params, update: Dtype::U32, 4).with(Content::Scalars(&[
                Scalar::Float(1e-3),
                Scalar::Uniform(0.1, 1.0),
                Scalar::Uniform(0.1, 1.0),
                Scalar::Word(0),
            ]))),
            Some(operand!(Read Self::Params, metrics: Dtype::F32, 6).with(Content::Scalars(&[
                Scalar::Float(1.0),
                Scalar::Float(2.0),
                Scalar::Float(3.0),
                Scalar::Uniform(0.1, 1.0),
                Scalar::Word(0),
                Scalar::Word(0),
            ]))),
            Some(operand!(ReadWrite Self::Params, master: Dtype::F32, n)),
            Some(operand!(ReadWrite Self::Params, m: Dtype::F32, n)),
            Some(operand!(ReadWrite Self::Params, v: Dtype::F32, n).with(Content::Uniform(0.0, 1.0))),
            (self.w == Dtype::Bf16).then(|| operand!(ReadWrite Self::Params, weights: Dtype::Bf16, n)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `add`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct add_params {
    /// `[n]` f32, read
    pub x: address,
    /// `[n]` f32, update
    pub y: address,
    /// elements
    pub n: u64,
}

arguments! {
    AddArgs of add_params {
        operands { x, y }
        optional { }
        scalars { n: u64 }
    }
}

key! {
    /// Adds elements.
    pub struct Add = "add" {  }
}

impl Kernel for Add {
    type Params = add_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let operands = [
            Some(operand!(Read Self::Params, x: Dtype::F32, n)),
            Some(operand!(ReadWrite Self::Params, y: Dtype::F32, n)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `attention.fwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct attention_fwd_params {
    /// `[batch, seq_len, heads + 2 * kv_heads, d]` x, read: in each row all query heads, then keys, then values
    pub qkv: address,
    /// `[batch, seq_len, heads, d]` x, write
    pub o: address,
    /// `[batch, heads, seq_len]` f32, write: log-sum-exp of the scaled scores
    pub lse: address,
    /// sequences
    pub batch: u32,
    /// tokens in each
    pub seq_len: u32,
    /// query heads
    pub heads: u32,
    /// key and value heads
    pub kv_heads: u32,
    /// factor of the scores
    pub scale: f32,
    pub reserved: u32,
}

arguments! {
    AttentionFwdArgs of attention_fwd_params {
        operands { qkv, o, lse }
        optional { }
        scalars { batch: u32, seq_len: u32, heads: u32, kv_heads: u32, scale: f32 }
    }
}

key! {
    /// Attends, and keeps the log-sum-exp of the scores.
    pub struct AttentionFwd = "attention.fwd" { d: u32, x: Dtype }
}

impl Kernel for AttentionFwd {
    type Params = attention_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let batch = u64::from(p.batch);
        let seq_len = u64::from(p.seq_len);
        let heads = u64::from(p.heads);
        let kv_heads = u64::from(p.kv_heads);
        let d = u64::from(self.d);
        let operands = [
            Some(operand!(Read Self::Params, qkv: self.x, batch * seq_len * (heads + 2 * kv_heads) * d)),
            Some(operand!(Write Self::Params, o: self.x, batch * seq_len * heads * d)),
            Some(operand!(Write Self::Params, lse: Dtype::F32, batch * heads * seq_len)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let d = u64::from(self.d);
        let seq_len = u64::from(p.seq_len);
        let batch = u64::from(p.batch);
        let heads = u64::from(p.heads);
        4 * d * (seq_len * (seq_len + 1) / 2) * batch * heads
    }
}

/// Parameter block of `attention.delta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct attention_delta_params {
    /// `[batch, seq_len, heads, d]` x, read
    pub o: address,
    /// `[batch, seq_len, heads, d]` x, read
    pub d_o: address,
    /// `[batch, heads, seq_len]` f32, write
    pub delta: address,
    /// sequences
    pub batch: u32,
    /// tokens in each
    pub seq_len: u32,
    /// query heads
    pub heads: u32,
    pub reserved: u32,
}

arguments! {
    AttentionDeltaArgs of attention_delta_params {
        operands { o, d_o, delta }
        optional { }
        scalars { batch: u32, seq_len: u32, heads: u32 }
    }
}

key! {
    /// Sums output times output gradient over each row.
    pub struct AttentionDelta = "attention.delta" { d: u32, x: Dtype }
}

impl Kernel for AttentionDelta {
    type Params = attention_delta_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let batch = u64::from(p.batch);
        let seq_len = u64::from(p.seq_len);
        let heads = u64::from(p.heads);
        let d = u64::from(self.d);
        let operands = [
            Some(operand!(Read Self::Params, o: self.x, batch * seq_len * heads * d)),
            Some(operand!(Read Self::Params, d_o: self.x, batch * seq_len * heads * d)),
            Some(operand!(Write Self::Params, delta: Dtype::F32, batch * heads * seq_len)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `attention.bwd`.
/// Checks put `lse` above any score, so that probabilities stay below one as in a real backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct attention_bwd_params {
    /// `[batch, seq_len, heads + 2 * kv_heads, d]` x, read
    pub qkv: address,
    /// `[batch, seq_len, heads, d]` x, read
    pub d_o: address,
    /// `[batch, heads, seq_len]` f32, read, uniform(4.0, 6.0)
    pub lse: address,
    /// `[batch, heads, seq_len]` f32, read: row sums of `o * d_o`
    pub delta: address,
    /// `[batch, seq_len, heads + 2 * kv_heads, d]` x, write: laid out as `qkv`
    pub dqkv: address,
    /// sequences
    pub batch: u32,
    /// tokens in each
    pub seq_len: u32,
    /// query heads
    pub heads: u32,
    /// key and value heads
    pub kv_heads: u32,
    /// factor of the scores
    pub scale: f32,
    pub reserved: u32,
}

arguments! {
    AttentionBwdArgs of attention_bwd_params {
        operands { qkv, d_o, lse, delta, dqkv }
        optional { }
        scalars { batch: u32, seq_len: u32, heads: u32, kv_heads: u32, scale: f32 }
    }
}

key! {
    /// Computes the gradients of queries, keys and values.
    pub struct AttentionBwd = "attention.bwd" { d: u32, x: Dtype }
}

impl Kernel for AttentionBwd {
    type Params = attention_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let batch = u64::from(p.batch);
        let seq_len = u64::from(p.seq_len);
        let heads = u64::from(p.heads);
        let kv_heads = u64::from(p.kv_heads);
        let d = u64::from(self.d);
        let operands = [
            Some(operand!(Read Self::Params, qkv: self.x, batch * seq_len * (heads + 2 * kv_heads) * d)),
            Some(operand!(Read Self::Params, d_o: self.x, batch * seq_len * heads * d)),
            Some(
                operand!(Read Self::Params, lse: Dtype::F32, batch * heads * seq_len).with(Content::Uniform(4.0, 6.0)),
            ),
            Some(operand!(Read Self::Params, delta: Dtype::F32, batch * heads * seq_len)),
            Some(operand!(Write Self::Params, dqkv: self.x, batch * seq_len * (heads + 2 * kv_heads) * d)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let d = u64::from(self.d);
        let seq_len = u64::from(p.seq_len);
        let batch = u64::from(p.batch);
        let heads = u64::from(p.heads);
        10 * d * (seq_len * (seq_len + 1) / 2) * batch * heads
    }
}

/// Parameter block of `kv.store`.
/// No two rows have the same slot and position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct kv_store_params {
    /// `[rows, heads + 2 * kv_heads, d]` x, read: in each row all query heads, then keys, then values
    pub qkv: address,
    /// `[rows]` u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT
    pub slot: address,
    /// `[rows]` u32, read, ids(seq_len): the row's, in its sequence
    pub position: address,
    /// `[slots, kv_heads, seq_len, d]` x, update: those of other positions are untouched
    pub keys: address,
    /// `[slots, kv_heads, seq_len, d]` x, update: those of other positions are untouched
    pub values: address,
    pub rows: u32,
    /// sequences that the pool has room for
    pub slots: u32,
    /// positions of each
    pub seq_len: u32,
    /// query heads
    pub heads: u32,
    /// key and value heads
    pub kv_heads: u32,
    pub reserved: u32,
}

arguments! {
    KvStoreArgs of kv_store_params {
        operands { qkv, slot, position, keys, values }
        optional { }
        scalars { rows: u32, slots: u32, seq_len: u32, heads: u32, kv_heads: u32 }
    }
}

key! {
    /// Stores keys and values of rows in a pool.
    pub struct KvStore = "kv.store" { d: u32, x: Dtype }
}

impl Kernel for KvStore {
    type Params = kv_store_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let heads = u64::from(p.heads);
        let kv_heads = u64::from(p.kv_heads);
        let d = u64::from(self.d);
        let slots = u64::from(p.slots);
        let seq_len = u64::from(p.seq_len);
        let operands = [
            Some(operand!(Read Self::Params, qkv: self.x, rows * (heads + 2 * kv_heads) * d)),
            Some(operand!(Read Self::Params, slot: Dtype::U32, rows).with(Content::Slots(p.slots))),
            Some(operand!(Read Self::Params, position: Dtype::U32, rows).with(Content::Ids(p.seq_len))),
            Some(operand!(ReadWrite Self::Params, keys: self.x, slots * kv_heads * seq_len * d)),
            Some(operand!(ReadWrite Self::Params, values: self.x, slots * kv_heads * seq_len * d)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let rows = u64::from(p.rows);
        let kv_heads = u64::from(p.kv_heads);
        let d = u64::from(self.d);
        rows * (8 + 4 * kv_heads * d * self.x.bytes())
    }
}

/// Parameter block of `attention.decode`.
/// The row at a position has the bits of that row of `attention.fwd`. Its own key and value are in the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct attention_decode_params {
    /// `[rows, heads + 2 * kv_heads, d]` x, read: in each row all query heads; keys and values are not read
    pub qkv: address,
    /// `[rows]` u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT
    pub slot: address,
    /// `[rows]` u32, read, ids(seq_len): the row's, in its sequence
    pub position: address,
    /// `[slots, kv_heads, seq_len, d]` x, read
    pub keys: address,
    /// `[slots, kv_heads, seq_len, d]` x, read
    pub values: address,
    /// `[rows, heads, d]` x, write: zeros for an idle slot
    pub o: address,
    pub rows: u32,
    /// sequences that the pool has room for
    pub slots: u32,
    /// positions of each
    pub seq_len: u32,
    /// query heads
    pub heads: u32,
    /// key and value heads
    pub kv_heads: u32,
    /// factor of the scores
    pub scale: f32,
}

arguments! {
    AttentionDecodeArgs of attention_decode_params {
        operands { qkv, slot, position, keys, values, o }
        optional { }
        scalars { rows: u32, slots: u32, seq_len: u32, heads: u32, kv_heads: u32, scale: f32 }
    }
}

key! {
    /// Attends from rows to the keys of their slots up to their positions.
    pub struct AttentionDecode = "attention.decode" { d: u32, x: Dtype }
}

impl Kernel for AttentionDecode {
    type Params = attention_decode_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let heads = u64::from(p.heads);
        let kv_heads = u64::from(p.kv_heads);
        let d = u64::from(self.d);
        let slots = u64::from(p.slots);
        let seq_len = u64::from(p.seq_len);
        let operands = [
            Some(operand!(Read Self::Params, qkv: self.x, rows * (heads + 2 * kv_heads) * d)),
            Some(operand!(Read Self::Params, slot: Dtype::U32, rows).with(Content::Slots(p.slots))),
            Some(operand!(Read Self::Params, position: Dtype::U32, rows).with(Content::Ids(p.seq_len))),
            Some(operand!(Read Self::Params, keys: self.x, slots * kv_heads * seq_len * d)),
            Some(operand!(Read Self::Params, values: self.x, slots * kv_heads * seq_len * d)),
            Some(operand!(Write Self::Params, o: self.x, rows * heads * d)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let rows = u64::from(p.rows);
        let heads = u64::from(p.heads);
        let kv_heads = u64::from(p.kv_heads);
        let seq_len = u64::from(p.seq_len);
        let d = u64::from(self.d);
        rows * (8 + (2 * heads + kv_heads * (seq_len + 1)) * d * self.x.bytes())
    }
}

/// Parameter block of `bits.compare`.
/// NaN and zeros of two signs compare as bits. No two rows have the same slot and position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct bits_compare_params {
    /// `[rows, vocab]` x, read, few()
    pub found: address,
    /// `[slots, seq_len, vocab]` x, read, few()
    pub expected: address,
    /// `[rows]` u32, read, slots(slots): the row's sequence, or IDLE_SLOT: nothing is compared
    pub slot: address,
    /// `[rows]` u32, read, ids(seq_len): the row's, in its sequence
    pub position: address,
    /// `[slots, seq_len]` u32, update, ids(64): elements compared; those of other places are untouched
    pub compared: address,
    /// `[slots, seq_len]` u32, update, ids(64): elements of these whose bits differ
    pub differing: address,
    pub rows: u32,
    /// sequences that are expected
    pub slots: u32,
    /// positions of each
    pub seq_len: u32,
    pub vocab: u32,
}

arguments! {
    BitsCompareArgs of bits_compare_params {
        operands { found, expected, slot, position, compared, differing }
        optional { }
        scalars { rows: u32, slots: u32, seq_len: u32, vocab: u32 }
    }
}

key! {
    /// Counts elements of rows whose bits are not those expected at their places in sequences.
    pub struct BitsCompare = "bits.compare" { x: Dtype }
}

impl Kernel for BitsCompare {
    type Params = bits_compare_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let vocab = u64::from(p.vocab);
        let slots = u64::from(p.slots);
        let seq_len = u64::from(p.seq_len);
        let operands = [
            Some(operand!(Read Self::Params, found: self.x, rows * vocab).with(Content::Few)),
            Some(operand!(Read Self::Params, expected: self.x, slots * seq_len * vocab).with(Content::Few)),
            Some(operand!(Read Self::Params, slot: Dtype::U32, rows).with(Content::Slots(p.slots))),
            Some(operand!(Read Self::Params, position: Dtype::U32, rows).with(Content::Ids(p.seq_len))),
            Some(operand!(ReadWrite Self::Params, compared: Dtype::U32, slots * seq_len).with(Content::Ids(64))),
            Some(operand!(ReadWrite Self::Params, differing: Dtype::U32, slots * seq_len).with(Content::Ids(64))),
        ];
        operands.into_iter().flatten().collect()
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let rows = u64::from(p.rows);
        let vocab = u64::from(p.vocab);
        rows * (16 + 2 * vocab * self.x.bytes())
    }
}

/// Parameter block of `cast`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct cast_params {
    /// `[n]` from, read
    pub x: address,
    /// `[n]` to, write
    pub y: address,
    /// elements
    pub n: u64,
}

arguments! {
    CastArgs of cast_params {
        operands { x, y }
        optional { }
        scalars { n: u64 }
    }
}

key! {
    /// Casts elements, rounding to nearest even.
    pub struct Cast = "cast" { from: Dtype, to: Dtype }
}

impl Kernel for Cast {
    type Params = cast_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let operands =
            [Some(operand!(Read Self::Params, x: self.from, n)), Some(operand!(Write Self::Params, y: self.to, n))];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `column_sum.partial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct column_sum_partial_params {
    /// `[rows, n]` x, read
    pub x: address,
    /// `[ceil(rows / group), n]` f32, write
    pub partial: address,
    pub rows: u32,
    pub n: u32,
    /// rows of `x` that share one partial sum
    pub group: u32,
    pub reserved: u32,
}

arguments! {
    ColumnSumPartialArgs of column_sum_partial_params {
        operands { x, partial }
        optional { }
        scalars { rows: u32, n: u32, group: u32 }
    }
}

key! {
    /// Sums each column over groups of rows.
    pub struct ColumnSumPartial = "column_sum.partial" { x: Dtype }
}

impl Kernel for ColumnSumPartial {
    type Params = column_sum_partial_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let n = u64::from(p.n);
        let group = u64::from(p.group);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, rows * n)),
            Some(operand!(Write Self::Params, partial: Dtype::F32, rows.div_ceil(group) * n)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `column_sum.finish`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct column_sum_finish_params {
    /// `[rows, n]` f32, read
    pub partial: address,
    /// micro_scalars, read
    pub micro: address,
    /// `[n]` f32, update
    pub grad: address,
    pub rows: u32,
    pub n: u32,
}

arguments! {
    ColumnSumFinishArgs of column_sum_finish_params {
        operands { partial, micro, grad }
        optional { }
        scalars { rows: u32, n: u32 }
    }
}

key! {
    /// Adds the groups up into a gradient.
    pub struct ColumnSumFinish = "column_sum.finish" {  }
}

impl Kernel for ColumnSumFinish {
    type Params = column_sum_finish_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let n = u64::from(p.n);
        let operands = [
            Some(operand!(Read Self::Params, partial: Dtype::F32, rows * n)),
            Some(
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)])),
            ),
            Some(operand!(ReadWrite Self::Params, grad: Dtype::F32, n)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `dequant`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct dequant_params {
    /// `[n]` w, read
    pub w: address,
    /// `[n]` x, write
    pub x: address,
    /// elements, whole blocks
    pub n: u64,
}

arguments! {
    DequantArgs of dequant_params {
        operands { w, x }
        optional { }
        scalars { n: u64 }
    }
}

key! {
    /// Makes blocks dense.
    pub struct Dequant = "dequant" { w: Block, x: Dtype }
}

impl Kernel for Dequant {
    type Params = dequant_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let operands =
            [Some(operand!(Read Self::Params, w: self.w, n)), Some(operand!(Write Self::Params, x: self.x, n))];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `embedding.fwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct embedding_fwd_params {
    /// `[tokens]` u32, read, ids(vocab): each below `vocab`
    pub ids: address,
    /// `[vocab, h]` w, read
    pub table: address,
    /// `[tokens, h]` x, write
    pub y: address,
    pub tokens: u32,
    pub vocab: u32,
}

arguments! {
    EmbeddingFwdArgs of embedding_fwd_params {
        operands { ids, table, y }
        optional { }
        scalars { tokens: u32, vocab: u32 }
    }
}

key! {
    /// Gathers rows of an embedding table.
    pub struct EmbeddingFwd = "embedding.fwd" { h: u32, w: Format, x: Dtype }
}

impl Kernel for EmbeddingFwd {
    type Params = embedding_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let vocab = u64::from(p.vocab);
        let h = u64::from(self.h);
        let operands = [
            Some(operand!(Read Self::Params, ids: Dtype::U32, tokens).with(Content::Ids(p.vocab))),
            Some(operand!(Read Self::Params, table: self.w, vocab * h)),
            Some(operand!(Write Self::Params, y: self.x, tokens * h)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let tokens = u64::from(p.tokens);
        let h = u64::from(self.h);
        tokens * (4 + self.w.bytes(h) + h * self.x.bytes())
    }
}

/// Parameter block of `embedding.bwd`.
/// Rows of tokens that do not occur stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct embedding_bwd_params {
    /// `[tokens]` u32, read, sorted_ids(vocab): ascending
    pub sorted_ids: address,
    /// `[tokens]` u32, read, positions_of(sorted_ids): row of `dy` of each sorted id; ascending within an id
    pub sorted_positions: address,
    /// `[tokens, h]` x, read
    pub dy: address,
    /// `[vocab, h]` f32, update
    pub dtable: address,
    pub tokens: u32,
    pub vocab: u32,
}

arguments! {
    EmbeddingBwdArgs of embedding_bwd_params {
        operands { sorted_ids, sorted_positions, dy, dtable }
        optional { }
        scalars { tokens: u32, vocab: u32 }
    }
}

key! {
    /// Adds gradients into the rows they came from.
    pub struct EmbeddingBwd = "embedding.bwd" { h: u32, x: Dtype }
}

impl Kernel for EmbeddingBwd {
    type Params = embedding_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let h = u64::from(self.h);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, sorted_ids: Dtype::U32, tokens).with(Content::SortedIds(p.vocab))),
            Some(
                operand!(Read Self::Params, sorted_positions: Dtype::U32, tokens)
                    .with(Content::PositionsOf("sorted_ids")),
            ),
            Some(operand!(Read Self::Params, dy: self.x, tokens * h)),
            Some(operand!(ReadWrite Self::Params, dtable: Dtype::F32, vocab * h)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let tokens = u64::from(p.tokens);
        let h = u64::from(self.h);
        let vocab = u64::from(p.vocab);
        tokens * (8 + h * self.x.bytes()) + 2 * tokens.min(vocab) * h * 4
    }
}

/// Parameter block of `fill`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct fill_params {
    /// micro_scalars, read if first
    pub micro: address,
    /// `[n]` f32, update if first, write if !first
    pub y: address,
    /// elements
    pub n: u64,
    pub value: f32,
    pub reserved: u32,
}

arguments! {
    FillArgs of fill_params {
        operands { y }
        optional { micro }
        scalars { n: u64, value: f32 }
    }
}

key! {
    /// Sets elements; with `first`, in the first micro-batch only.
    pub struct Fill = "fill" { first: bool }
}

impl Kernel for Fill {
    type Params = fill_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let operands = [
            self.first.then(|| {
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)]))
            }),
            self.first.then(|| operand!(ReadWrite Self::Params, y: Dtype::F32, n)),
            (!self.first).then(|| operand!(Write Self::Params, y: Dtype::F32, n)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `gemm.fwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C, align(64))]
pub struct gemm_fwd_params {
    /// `[m, k]` x, read
    pub x: address,
    /// `[n, k]` w, read
    pub w: address,
    /// `[n]` x.output(), read if bias
    pub bias: address,
    /// `[m, n]` x.output(), read if residual
    pub residual: address,
    /// `[m, n]` x.output(), write
    pub y: address,
    /// rows: tokens
    pub m: u32,
    /// out features
    pub n: u32,
    /// in features
    pub k: u32,
    pub reserved: [u32; 3],
    /// `x`, `w`
    pub maps: [tensor_map; 2],
    /// `[m]` f32, read if x == i8, uniform(1e-3, 2e-2)
    pub x_scale: address,
    /// `[n]` f32, read if x == i8, uniform(1e-3, 2e-2)
    pub w_scale: address,
    pub reserved_int8: [u32; 12],
}

arguments! {
    GemmFwdArgs of gemm_fwd_params {
        operands { x, w, y }
        optional { bias, residual, x_scale, w_scale }
        scalars { m: u32, n: u32, k: u32 }
    }
}

key! {
    /// Multiplies inputs by weights.
    pub struct GemmFwd = "gemm.fwd" { bias: bool, residual: bool, w: Format, x: Format }
}

impl Kernel for GemmFwd {
    type Params = gemm_fwd_params;

    fn params_bytes(&self) -> usize {
        if self.x == Dtype::I8 { size_of::<Self::Params>() } else { offset_of!(Self::Params, x_scale) }
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let k = u64::from(p.k);
        let n = u64::from(p.n);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, m * k)),
            Some(operand!(Read Self::Params, w: self.w, n * k)),
            self.bias.then(|| operand!(Read Self::Params, bias: self.x.output(), n)),
            self.residual.then(|| operand!(Read Self::Params, residual: self.x.output(), m * n)),
            Some(operand!(Write Self::Params, y: self.x.output(), m * n)),
            (self.x == Dtype::I8)
                .then(|| operand!(Read Self::Params, x_scale: Dtype::F32, m).with(Content::Uniform(1e-3, 2e-2))),
            (self.x == Dtype::I8)
                .then(|| operand!(Read Self::Params, w_scale: Dtype::F32, n).with(Content::Uniform(1e-3, 2e-2))),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let k = u64::from(p.k);
        2 * m * n * k
    }
}

/// Parameter block of `gemm.swiglu`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C, align(64))]
pub struct gemm_swiglu_params {
    /// `[m, k]` x, read
    pub x: address,
    /// `[2 * n, k]` w, read: the gate features, then the up features
    pub w: address,
    /// `[2 * n]` x.output(), read if bias
    pub bias: address,
    /// `[m, n]` x.output(), write
    pub y: address,
    /// rows: tokens
    pub m: u32,
    /// out features: half of those that are computed
    pub n: u32,
    /// in features
    pub k: u32,
    pub reserved: [u32; 5],
    /// `x`, `w`
    pub maps: [tensor_map; 2],
    /// `[m]` f32, read if x == i8, uniform(1e-3, 2e-2)
    pub x_scale: address,
    /// `[2 * n]` f32, read if x == i8, uniform(1e-3, 2e-2)
    pub w_scale: address,
    pub reserved_int8: [u32; 12],
}

arguments! {
    GemmSwigluArgs of gemm_swiglu_params {
        operands { x, w, y }
        optional { bias, x_scale, w_scale }
        scalars { m: u32, n: u32, k: u32 }
    }
}

key! {
    /// Multiplies inputs by the weights of gate and up, and gates.
    pub struct GemmSwiglu = "gemm.swiglu" { bias: bool, w: Format, x: Format }
}

impl Kernel for GemmSwiglu {
    type Params = gemm_swiglu_params;

    fn params_bytes(&self) -> usize {
        if self.x == Dtype::I8 { size_of::<Self::Params>() } else { offset_of!(Self::Params, x_scale) }
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let k = u64::from(p.k);
        let n = u64::from(p.n);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, m * k)),
            Some(operand!(Read Self::Params, w: self.w, (2 * n) * k)),
            self.bias.then(|| operand!(Read Self::Params, bias: self.x.output(), 2 * n)),
            Some(operand!(Write Self::Params, y: self.x.output(), m * n)),
            (self.x == Dtype::I8)
                .then(|| operand!(Read Self::Params, x_scale: Dtype::F32, m).with(Content::Uniform(1e-3, 2e-2))),
            (self.x == Dtype::I8)
                .then(|| operand!(Read Self::Params, w_scale: Dtype::F32, 2 * n).with(Content::Uniform(1e-3, 2e-2))),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let k = u64::from(p.k);
        2 * m * 2 * n * k
    }
}

/// Parameter block of `gemm.dgrad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C, align(64))]
pub struct gemm_dgrad_params {
    /// `[m, n]` x, read
    pub dy: address,
    /// `[n, k]` w, read
    pub w: address,
    /// `[m, k]` x, write
    pub dx: address,
    /// `[workspace()]` f32, scratch if splits > 1: whole tiles, the sum of the splits so far
    pub workspace: address,
    /// `[semaphores()]` u32, update if splits > 1, zeros: per tile the split that may add next; 0 between launches
    pub semaphores: address,
    /// rows: tokens
    pub m: u32,
    /// out features
    pub n: u32,
    /// in features
    pub k: u32,
    /// split-K: CTAs per tile, which add one after the other; 0 or 1 for none
    pub splits: u32,
    pub reserved: [u32; 2],
    /// `dy`, `w`
    pub maps: [tensor_map; 2],
}

arguments! {
    GemmDgradArgs of gemm_dgrad_params {
        operands { dy, w, dx }
        optional { workspace, semaphores }
        scalars { m: u32, n: u32, k: u32, splits: u32 }
    }
}

key! {
    /// Computes the gradient of the inputs.
    pub struct GemmDgrad = "gemm.dgrad" { w: Format, x: Dtype }
}

impl Kernel for GemmDgrad {
    type Params = gemm_dgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let k = u64::from(p.k);
        let operands = [
            Some(operand!(Read Self::Params, dy: self.x, m * n)),
            Some(operand!(Read Self::Params, w: self.w, n * k)),
            Some(operand!(Write Self::Params, dx: self.x, m * k)),
            (p.splits > 1).then(|| operand!(Scratch Self::Params, workspace: Dtype::F32, self.workspace(p))),
            (p.splits > 1).then(|| {
                operand!(ReadWrite Self::Params, semaphores: Dtype::U32, self.semaphores(p)).with(Content::Zeros)
            }),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let k = u64::from(p.k);
        2 * m * n * k
    }
}

/// Parameter block of `gemm.wgrad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C, align(64))]
pub struct gemm_wgrad_params {
    /// `[m, n]` x, read
    pub dy: address,
    /// `[m, k]` x, read
    pub x: address,
    /// micro_scalars, read
    pub micro: address,
    /// `[n, k]` f32, update
    pub dw: address,
    /// `[semaphores()]` u32, update if splits > 1, zeros: per tile the split that may add next; 0 between launches
    pub semaphores: address,
    /// rows: tokens
    pub m: u32,
    /// out features
    pub n: u32,
    /// in features
    pub k: u32,
    /// 1: adds to `dw` whatever `micro` says (a later chunk of the same micro-batch)
    pub accumulate: u32,
    /// split-K: CTAs per tile, which add one after the other; 0 or 1 for none
    pub splits: u32,
    pub reserved: u32,
    /// `dy`, `x`
    pub maps: [tensor_map; 2],
}

arguments! {
    GemmWgradArgs of gemm_wgrad_params {
        operands { dy, x, micro, dw }
        optional { semaphores }
        scalars { m: u32, n: u32, k: u32, accumulate: u32, splits: u32 }
    }
}

key! {
    /// Computes the gradient of the weights.
    pub struct GemmWgrad = "gemm.wgrad" { x: Dtype }
}

impl Kernel for GemmWgrad {
    type Params = gemm_wgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let k = u64::from(p.k);
        let operands = [
            Some(operand!(Read Self::Params, dy: self.x, m * n)),
            Some(operand!(Read Self::Params, x: self.x, m * k)),
            Some(
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)])),
            ),
            Some(operand!(ReadWrite Self::Params, dw: Dtype::F32, n * k)),
            (p.splits > 1).then(|| {
                operand!(ReadWrite Self::Params, semaphores: Dtype::U32, self.semaphores(p)).with(Content::Zeros)
            }),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let k = u64::from(p.k);
        2 * m * n * k
    }
}

/// Parameter block of `grad_distance.partial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct grad_distance_partial_params {
    /// `[n]` f32, read
    pub a: address,
    /// `[n]` f32, read
    pub b: address,
    /// `[3, ceil(n / group)]` f32, write: sums of a b, of a^2, of b^2
    pub partial: address,
    /// elements
    pub n: u64,
    /// elements that share one partial sum
    pub group: u32,
    pub reserved: u32,
}

arguments! {
    GradDistancePartialArgs of grad_distance_partial_params {
        operands { a, b, partial }
        optional { }
        scalars { n: u64, group: u32 }
    }
}

key! {
    /// Dot products of groups of elements.
    pub struct GradDistancePartial = "grad_distance.partial" {  }
}

impl Kernel for GradDistancePartial {
    type Params = grad_distance_partial_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let group = u64::from(p.group);
        let operands = [
            Some(operand!(Read Self::Params, a: Dtype::F32, n)),
            Some(operand!(Read Self::Params, b: Dtype::F32, n)),
            Some(operand!(Write Self::Params, partial: Dtype::F32, 3 * n.div_ceil(group))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `grad_norm.partial`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct grad_norm_partial_params {
    /// `[n]` f32, read
    pub grad: address,
    /// `[ceil(n / group)]` f32, write
    pub partial: address,
    /// elements
    pub n: u64,
    /// elements that share one partial sum
    pub group: u32,
    pub reserved: u32,
}

arguments! {
    GradNormPartialArgs of grad_norm_partial_params {
        operands { grad, partial }
        optional { }
        scalars { n: u64, group: u32 }
    }
}

key! {
    /// Sums squares of groups of elements.
    pub struct GradNormPartial = "grad_norm.partial" {  }
}

impl Kernel for GradNormPartial {
    type Params = grad_norm_partial_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = p.n;
        let group = u64::from(p.group);
        let operands = [
            Some(operand!(Read Self::Params, grad: Dtype::F32, n)),
            Some(operand!(Write Self::Params, partial: Dtype::F32, n.div_ceil(group))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `grad_norm.finish`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct grad_norm_finish_params {
    /// `[count]` f32, read, uniform(0.0, 1.0)
    pub partial: address,
    /// step_metrics, update: `grad_norm`, `clip_scale`, `skipped`
    pub metrics: address,
    pub count: u32,
    /// largest norm allowed; 0 for none
    pub clip: f32,
}

arguments! {
    GradNormFinishArgs of grad_norm_finish_params {
        operands { partial, metrics }
        optional { }
        scalars { count: u32, clip: f32 }
    }
}

key! {
    /// Computes norm and clip, and checks that the norm is finite.
    pub struct GradNormFinish = "grad_norm.finish" {  }
}

impl Kernel for GradNormFinish {
    type Params = grad_norm_finish_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let count = u64::from(p.count);
        let operands = [
            Some(operand!(Read Self::Params, partial: Dtype::F32, count).with(Content::Uniform(0.0, 1.0))),
            Some(operand!(ReadWrite Self::Params, metrics: Dtype::F32, 6).with(Content::Scalars(&[
                Scalar::Float(1.0),
                Scalar::Float(2.0),
                Scalar::Float(3.0),
                Scalar::Uniform(0.1, 1.0),
                Scalar::Word(0),
                Scalar::Word(0),
            ]))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `head.distill`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct head_distill_params {
    /// `[tokens, vocab]` x, read: logits
    pub teacher: address,
    /// `[tokens, vocab]` x, update: logits, replaced by their gradient
    pub student: address,
    /// `[tokens]` u32, read, targets(vocab)
    pub targets: address,
    /// micro_scalars, read
    pub micro: address,
    /// `[tokens]` f32, write: the divergence at `temperature`
    pub kd: address,
    /// `[tokens]` f32, write: cross entropy at temperature 1
    pub ce: address,
    pub tokens: u32,
    pub vocab: u32,
    /// share of the divergence, 0 to 1
    pub alpha: f32,
    pub temperature: f32,
}

arguments! {
    HeadDistillArgs of head_distill_params {
        operands { teacher, student, targets, micro, kd, ce }
        optional { }
        scalars { tokens: u32, vocab: u32, alpha: f32, temperature: f32 }
    }
}

key! {
    /// Computes losses of a chunk, and the gradient of its student logits in place. The divergence is
    /// Kullback-Leibler's, of the student from the teacher or in reverse.
    pub struct HeadDistill = "head.distill" { reverse: bool, x: Dtype }
}

impl Kernel for HeadDistill {
    type Params = head_distill_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, teacher: self.x, tokens * vocab)),
            Some(operand!(ReadWrite Self::Params, student: self.x, tokens * vocab)),
            Some(operand!(Read Self::Params, targets: Dtype::U32, tokens).with(Content::Targets(p.vocab))),
            Some(
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)])),
            ),
            Some(operand!(Write Self::Params, kd: Dtype::F32, tokens)),
            Some(operand!(Write Self::Params, ce: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `head.jsd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct head_jsd_params {
    /// `[tokens, vocab]` x, read: logits
    pub teacher: address,
    /// `[tokens, vocab]` x, update: logits, replaced by their gradient
    pub student: address,
    /// `[tokens]` u32, read, targets(vocab)
    pub targets: address,
    /// micro_scalars, read
    pub micro: address,
    /// `[tokens]` f32, write: the divergence at `temperature`
    pub kd: address,
    /// `[tokens]` f32, write: cross entropy at temperature 1
    pub ce: address,
    pub tokens: u32,
    pub vocab: u32,
    /// share of the divergence, 0 to 1
    pub alpha: f32,
    pub temperature: f32,
    /// weight of the teacher in the mixture, between 0 and 1
    pub beta: f32,
    pub reserved: u32,
}

arguments! {
    HeadJsdArgs of head_jsd_params {
        operands { teacher, student, targets, micro, kd, ce }
        optional { }
        scalars { tokens: u32, vocab: u32, alpha: f32, temperature: f32, beta: f32 }
    }
}

key! {
    /// Computes losses like `head.distill`, by the divergences of teacher and student from their mixture.
    pub struct HeadJsd = "head.jsd" { x: Dtype }
}

impl Kernel for HeadJsd {
    type Params = head_jsd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, teacher: self.x, tokens * vocab)),
            Some(operand!(ReadWrite Self::Params, student: self.x, tokens * vocab)),
            Some(operand!(Read Self::Params, targets: Dtype::U32, tokens).with(Content::Targets(p.vocab))),
            Some(
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)])),
            ),
            Some(operand!(Write Self::Params, kd: Dtype::F32, tokens)),
            Some(operand!(Write Self::Params, ce: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `head.ce`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct head_ce_params {
    /// `[tokens, vocab]` x, update: replaced by their gradient
    pub logits: address,
    /// `[tokens]` u32, read, targets(vocab)
    pub targets: address,
    /// micro_scalars, read
    pub micro: address,
    /// `[tokens]` f32, write: cross entropy
    pub ce: address,
    pub tokens: u32,
    pub vocab: u32,
}

arguments! {
    HeadCeArgs of head_ce_params {
        operands { logits, targets, micro, ce }
        optional { }
        scalars { tokens: u32, vocab: u32 }
    }
}

key! {
    /// Computes cross entropies of a chunk, and the gradient of its logits in place.
    pub struct HeadCe = "head.ce" { x: Dtype }
}

impl Kernel for HeadCe {
    type Params = head_ce_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(ReadWrite Self::Params, logits: self.x, tokens * vocab)),
            Some(operand!(Read Self::Params, targets: Dtype::U32, tokens).with(Content::Targets(p.vocab))),
            Some(
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)])),
            ),
            Some(operand!(Write Self::Params, ce: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `head.nll`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct head_nll_params {
    /// `[tokens, vocab]` x, read
    pub logits: address,
    /// `[tokens]` u32, read, targets(vocab)
    pub targets: address,
    /// `[tokens]` f32, write
    pub nll: address,
    pub tokens: u32,
    pub vocab: u32,
}

arguments! {
    HeadNllArgs of head_nll_params {
        operands { logits, targets, nll }
        optional { }
        scalars { tokens: u32, vocab: u32 }
    }
}

key! {
    /// Computes the negative log likelihood of a chunk.
    pub struct HeadNll = "head.nll" { x: Dtype }
}

impl Kernel for HeadNll {
    type Params = head_nll_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, logits: self.x, tokens * vocab)),
            Some(operand!(Read Self::Params, targets: Dtype::U32, tokens).with(Content::Targets(p.vocab))),
            Some(operand!(Write Self::Params, nll: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `head.compare`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct head_compare_params {
    /// `[tokens, vocab]` x, read: logits that others are compared with
    pub reference: address,
    /// `[tokens, vocab]` x, read
    pub logits: address,
    /// `[tokens]` u32, read, targets(vocab)
    pub targets: address,
    /// `[tokens]` f32, write: KL(reference || logits)
    pub kl: address,
    /// `[tokens]` f32, write: 1 where both have their largest logit at the same token
    pub agrees: address,
    /// `[tokens]` f32, write
    pub reference_nll: address,
    /// `[tokens]` f32, write
    pub nll: address,
    pub tokens: u32,
    pub vocab: u32,
}

arguments! {
    HeadCompareArgs of head_compare_params {
        operands { reference, logits, targets, kl, agrees, reference_nll, nll }
        optional { }
        scalars { tokens: u32, vocab: u32 }
    }
}

key! {
    /// Compares two models' predictions of a chunk.
    pub struct HeadCompare = "head.compare" { x: Dtype }
}

impl Kernel for HeadCompare {
    type Params = head_compare_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, reference: self.x, tokens * vocab)),
            Some(operand!(Read Self::Params, logits: self.x, tokens * vocab)),
            Some(operand!(Read Self::Params, targets: Dtype::U32, tokens).with(Content::Targets(p.vocab))),
            Some(operand!(Write Self::Params, kl: Dtype::F32, tokens)),
            Some(operand!(Write Self::Params, agrees: Dtype::F32, tokens)),
            Some(operand!(Write Self::Params, reference_nll: Dtype::F32, tokens)),
            Some(operand!(Write Self::Params, nll: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `head.metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct head_metrics_params {
    /// `[tokens]` f32, read if kd
    pub kd: address,
    /// `[tokens]` f32, read
    pub ce: address,
    /// micro_scalars, read
    pub micro: address,
    /// step_metrics, update: `kd_loss` and `ce_loss`, set in the first micro-batch, added to later
    pub metrics: address,
    pub tokens: u32,
    pub reserved: u32,
}

arguments! {
    HeadMetricsArgs of head_metrics_params {
        operands { ce, micro, metrics }
        optional { kd }
        scalars { tokens: u32 }
    }
}

key! {
    /// Adds mean losses of a micro-batch up over the step; that of the teacher with `kd`.
    pub struct HeadMetrics = "head.metrics" { kd: bool }
}

impl Kernel for HeadMetrics {
    type Params = head_metrics_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let operands = [
            self.kd.then(|| operand!(Read Self::Params, kd: Dtype::F32, tokens)),
            Some(operand!(Read Self::Params, ce: Dtype::F32, tokens)),
            Some(
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)])),
            ),
            Some(operand!(ReadWrite Self::Params, metrics: Dtype::F32, 6).with(Content::Scalars(&[
                Scalar::Float(1.0),
                Scalar::Float(2.0),
                Scalar::Float(3.0),
                Scalar::Uniform(0.1, 1.0),
                Scalar::Word(0),
                Scalar::Word(0),
            ]))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `head.topk`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct head_topk_params {
    /// `[tokens, keep]` u32, read, distinct(keep, vocab): tokens whose probabilities are known
    pub ids: address,
    /// `[tokens, keep + 1]` f32, read, log_probs(keep + 1): the teacher's at `temperature`, nats; the last entry is
    /// for the remaining tokens combined
    pub log_probs: address,
    /// `[tokens, vocab]` x, update: logits, replaced by their gradient
    pub student: address,
    /// `[tokens]` u32, read, targets(vocab)
    pub targets: address,
    /// micro_scalars, read
    pub micro: address,
    /// `[tokens]` f32, write: the divergence at `temperature`
    pub kd: address,
    /// `[tokens]` f32, write: cross entropy at temperature 1
    pub ce: address,
    pub tokens: u32,
    pub vocab: u32,
    /// below `vocab`, at most MOST_KEPT
    pub keep: u32,
    /// share of the divergence, 0 to 1
    pub alpha: f32,
    pub temperature: f32,
    /// weight of the teacher in the mixture; 0: the KL of the student from the teacher, 1: in reverse
    pub beta: f32,
}

arguments! {
    HeadTopkArgs of head_topk_params {
        operands { ids, log_probs, student, targets, micro, kd, ce }
        optional { }
        scalars { tokens: u32, vocab: u32, keep: u32, alpha: f32, temperature: f32, beta: f32 }
    }
}

key! {
    /// Computes losses like `head.distill` and `head.jsd`, by the divergence over some tokens whose teacher
    /// probabilities are known, and the combined rest.
    pub struct HeadTopk = "head.topk" { x: Dtype }
}

impl Kernel for HeadTopk {
    type Params = head_topk_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let keep = u64::from(p.keep);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, ids: Dtype::U32, tokens * keep).with(Content::Distinct(p.keep, p.vocab))),
            Some(
                operand!(Read Self::Params, log_probs: Dtype::F32, tokens * (keep + 1))
                    .with(Content::LogProbs(p.keep + 1)),
            ),
            Some(operand!(ReadWrite Self::Params, student: self.x, tokens * vocab)),
            Some(operand!(Read Self::Params, targets: Dtype::U32, tokens).with(Content::Targets(p.vocab))),
            Some(
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)])),
            ),
            Some(operand!(Write Self::Params, kd: Dtype::F32, tokens)),
            Some(operand!(Write Self::Params, ce: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `int8.quantize`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct int8_quantize_params {
    /// `[rows, k]` x, read, rows(k)
    pub x: address,
    /// `[rows, k]` i8, write
    pub q: address,
    /// `[rows]` f32, write
    pub scale: address,
    pub rows: u32,
    pub reserved: u32,
}

arguments! {
    Int8QuantizeArgs of int8_quantize_params {
        operands { x, q, scale }
        optional { }
        scalars { rows: u32 }
    }
}

key! {
    /// Quantizes rows to rotated int8.
    pub struct Int8Quantize = "int8.quantize" { k: u32, x: Dtype }
}

impl Kernel for Int8Quantize {
    type Params = int8_quantize_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let k = u64::from(self.k);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, rows * k).with(Content::Rows(self.k))),
            Some(operand!(Write Self::Params, q: Dtype::I8, rows * k)),
            Some(operand!(Write Self::Params, scale: Dtype::F32, rows)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `int8.columns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct int8_columns_params {
    /// `[n, columns]` x, read, columns(columns)
    pub x: address,
    /// `[columns, n]` i8, write
    pub q: address,
    /// `[columns]` f32, write
    pub scale: address,
    pub columns: u32,
    pub reserved: u32,
}

arguments! {
    Int8ColumnsArgs of int8_columns_params {
        operands { x, q, scale }
        optional { }
        scalars { columns: u32 }
    }
}

key! {
    /// Quantizes columns to rotated int8, as rows.
    pub struct Int8Columns = "int8.columns" { n: u32, x: Dtype }
}

impl Kernel for Int8Columns {
    type Params = int8_columns_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let n = u64::from(self.n);
        let columns = u64::from(p.columns);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, n * columns).with(Content::Columns(p.columns))),
            Some(operand!(Write Self::Params, q: Dtype::I8, columns * n)),
            Some(operand!(Write Self::Params, scale: Dtype::F32, columns)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// An adapted part of a stack: one of the projections that one matrix multiplication computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct lora_part {
    pub scale: f32,
    /// first column of `y`
    pub start: u32,
    /// columns
    pub width: u32,
    /// first row of `b`: the width of the parts before it
    pub row: u32,
}

/// Parameter block of `lora.fwd_a`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct lora_fwd_a_params {
    /// `[m, k]` x, read
    pub x: address,
    /// `[parts * rank, k]` x, read
    pub a: address,
    /// `[m, parts * rank]` x, write
    pub t: address,
    pub m: u32,
    pub k: u32,
    /// of each part
    pub rank: u32,
    pub parts: u32,
    pub part: [lora_part; 3],
}

arguments! {
    LoraFwdAArgs of lora_fwd_a_params {
        operands { x, a, t }
        optional { }
        scalars { m: u32, k: u32, rank: u32, parts: u32, part: [lora_part; 3] }
    }
}

key! {
    /// Multiplies inputs by `a`, to ranks.
    pub struct LoraFwdA = "lora.fwd_a" { x: Dtype }
}

impl Kernel for LoraFwdA {
    type Params = lora_fwd_a_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let k = u64::from(p.k);
        let parts = u64::from(p.parts);
        let rank = u64::from(p.rank);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, m * k)),
            Some(operand!(Read Self::Params, a: self.x, (parts * rank) * k)),
            Some(operand!(Write Self::Params, t: self.x, m * (parts * rank))),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let k = u64::from(p.k);
        let parts = u64::from(p.parts);
        let rank = u64::from(p.rank);
        2 * m * k * parts * rank
    }
}

/// Parameter block of `lora.fwd_b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct lora_fwd_b_params {
    /// `[m, parts * rank]` x, read
    pub t: address,
    /// `[width(), rank]` x, read
    pub b: address,
    /// `[m, n]` x, update: columns of parts, the rest is untouched
    pub y: address,
    pub m: u32,
    pub n: u32,
    /// of each part
    pub rank: u32,
    pub parts: u32,
    pub part: [lora_part; 3],
}

arguments! {
    LoraFwdBArgs of lora_fwd_b_params {
        operands { t, b, y }
        optional { }
        scalars { m: u32, n: u32, rank: u32, parts: u32, part: [lora_part; 3] }
    }
}

key! {
    /// Multiplies ranks by `b`, and adds to the outputs.
    pub struct LoraFwdB = "lora.fwd_b" { x: Dtype }
}

impl Kernel for LoraFwdB {
    type Params = lora_fwd_b_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let parts = u64::from(p.parts);
        let rank = u64::from(p.rank);
        let n = u64::from(p.n);
        let operands = [
            Some(operand!(Read Self::Params, t: self.x, m * (parts * rank))),
            Some(operand!(Read Self::Params, b: self.x, self.width(p) * rank)),
            Some(operand!(ReadWrite Self::Params, y: self.x, m * n)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let rank = u64::from(p.rank);
        2 * m * self.width(p) * rank
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let parts = u64::from(p.parts);
        let rank = u64::from(p.rank);
        (m * parts * rank + self.width(p) * rank + 2 * m * self.width(p)) * self.x.bytes()
    }
}

/// Parameter block of `lora.dgrad_b`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct lora_dgrad_b_params {
    /// `[m, n]` x, read: columns of parts
    pub dy: address,
    /// `[width(), rank]` x, read
    pub b: address,
    /// `[m, parts * rank]` x, write
    pub dt: address,
    pub m: u32,
    pub n: u32,
    /// of each part
    pub rank: u32,
    pub parts: u32,
    pub part: [lora_part; 3],
}

arguments! {
    LoraDgradBArgs of lora_dgrad_b_params {
        operands { dy, b, dt }
        optional { }
        scalars { m: u32, n: u32, rank: u32, parts: u32, part: [lora_part; 3] }
    }
}

key! {
    /// Computes the gradient of the ranks.
    pub struct LoraDgradB = "lora.dgrad_b" { x: Dtype }
}

impl Kernel for LoraDgradB {
    type Params = lora_dgrad_b_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let rank = u64::from(p.rank);
        let parts = u64::from(p.parts);
        let operands = [
            Some(operand!(Read Self::Params, dy: self.x, m * n)),
            Some(operand!(Read Self::Params, b: self.x, self.width(p) * rank)),
            Some(operand!(Write Self::Params, dt: self.x, m * (parts * rank))),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let rank = u64::from(p.rank);
        2 * m * self.width(p) * rank
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let rank = u64::from(p.rank);
        let parts = u64::from(p.parts);
        (m * self.width(p) + self.width(p) * rank + m * parts * rank) * self.x.bytes()
    }
}

/// Parameter block of `lora.dgrad_a`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct lora_dgrad_a_params {
    /// `[m, rank]` x, read
    pub dt: address,
    /// `[rank, k]` x, read
    pub a: address,
    /// `[m, k]` x, update
    pub dx: address,
    pub m: u32,
    pub k: u32,
    /// of all parts together
    pub rank: u32,
    pub reserved: u32,
}

arguments! {
    LoraDgradAArgs of lora_dgrad_a_params {
        operands { dt, a, dx }
        optional { }
        scalars { m: u32, k: u32, rank: u32 }
    }
}

key! {
    /// Computes the gradient of the inputs, and adds it to them.
    pub struct LoraDgradA = "lora.dgrad_a" { x: Dtype }
}

impl Kernel for LoraDgradA {
    type Params = lora_dgrad_a_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let rank = u64::from(p.rank);
        let k = u64::from(p.k);
        let operands = [
            Some(operand!(Read Self::Params, dt: self.x, m * rank)),
            Some(operand!(Read Self::Params, a: self.x, rank * k)),
            Some(operand!(ReadWrite Self::Params, dx: self.x, m * k)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let k = u64::from(p.k);
        let rank = u64::from(p.rank);
        2 * m * k * rank
    }
}

/// Parameter block of `lora.wgrad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct lora_wgrad_params {
    /// `[m, n]` x, read: columns of parts
    pub dy: address,
    /// `[m, parts * columns]` x, read
    pub x: address,
    /// `[width(), columns]` f32, update if splits == 1
    pub dw: address,
    /// `[splits, width(), columns]` f32, write if splits != 1
    pub partial: address,
    /// micro_scalars, read if splits == 1
    pub micro: address,
    pub m: u32,
    pub n: u32,
    /// of each part's gradient
    pub columns: u32,
    /// ranges of the m rows, whole slices of 32, each summed apart
    pub splits: u32,
    pub parts: u32,
    pub reserved: u32,
    pub part: [lora_part; 3],
}

arguments! {
    LoraWgradArgs of lora_wgrad_params {
        operands { dy, x }
        optional { dw, partial, micro }
        scalars { m: u32, n: u32, columns: u32, splits: u32, parts: u32, part: [lora_part; 3] }
    }
}

key! {
    /// Computes the gradients of either matrix.
    pub struct LoraWgrad = "lora.wgrad" { x: Dtype }
}

impl Kernel for LoraWgrad {
    type Params = lora_wgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let m = u64::from(p.m);
        let n = u64::from(p.n);
        let parts = u64::from(p.parts);
        let columns = u64::from(p.columns);
        let splits = u64::from(p.splits);
        let operands = [
            Some(operand!(Read Self::Params, dy: self.x, m * n)),
            Some(operand!(Read Self::Params, x: self.x, m * (parts * columns))),
            (p.splits == 1).then(|| operand!(ReadWrite Self::Params, dw: Dtype::F32, self.width(p) * columns)),
            (p.splits != 1)
                .then(|| operand!(Write Self::Params, partial: Dtype::F32, splits * self.width(p) * columns)),
            (p.splits == 1).then(|| {
                operand!(Read Self::Params, micro: Dtype::U32, 2)
                    .with(Content::Scalars(&[Scalar::Uniform(0.1, 1.0), Scalar::Below(2)]))
            }),
        ];
        operands.into_iter().flatten().collect()
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let columns = u64::from(p.columns);
        2 * m * self.width(p) * columns
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let m = u64::from(p.m);
        let parts = u64::from(p.parts);
        let columns = u64::from(p.columns);
        let splits = u64::from(p.splits);
        (m * self.width(p) + m * parts * columns) * self.x.bytes() + splits * self.width(p) * columns * 4
    }
}

/// Parameter block of `qk_norm.fwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct qk_norm_fwd_params {
    /// `[tokens, row_heads, d]` x, update: query and key heads, in place; the rest is untouched
    pub x: address,
    /// `[tokens, query_heads + key_heads, d]` x, write if keep: what they were
    pub raw: address,
    /// `[2, d]` x, read: of queries, of keys
    pub gamma: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub cos: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub sin: address,
    pub eps: f32,
    pub tokens: u32,
    pub seq_len: u32,
    pub query_heads: u32,
    /// behind the query heads of a row
    pub key_heads: u32,
    /// heads of a row, values' included
    pub row_heads: u32,
}

arguments! {
    QkNormFwdArgs of qk_norm_fwd_params {
        operands { x, gamma, cos, sin }
        optional { raw }
        scalars { eps: f32, tokens: u32, seq_len: u32, query_heads: u32, key_heads: u32, row_heads: u32 }
    }
}

key! {
    /// Normalizes and rotates query and key heads, after copying them if `keep`.
    pub struct QkNormFwd = "qk_norm.fwd" { d: u32, keep: bool, x: Dtype }
}

impl Kernel for QkNormFwd {
    type Params = qk_norm_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let row_heads = u64::from(p.row_heads);
        let d = u64::from(self.d);
        let query_heads = u64::from(p.query_heads);
        let key_heads = u64::from(p.key_heads);
        let seq_len = u64::from(p.seq_len);
        let operands = [
            Some(operand!(ReadWrite Self::Params, x: self.x, tokens * row_heads * d)),
            self.keep.then(|| operand!(Write Self::Params, raw: self.x, tokens * (query_heads + key_heads) * d)),
            Some(operand!(Read Self::Params, gamma: self.x, 2 * d)),
            Some(operand!(Read Self::Params, cos: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, sin: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `qk_norm.bwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct qk_norm_bwd_params {
    /// `[tokens, row_heads, d]` x, update: gradient of the rotated heads, replaced by that of `raw`
    pub dx: address,
    /// `[tokens, query_heads + key_heads, d]` x, read: what the forward pass normalized
    pub raw: address,
    /// `[2, d]` x, read: of queries, of keys
    pub gamma: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub cos: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub sin: address,
    /// `[ceil(tokens / rows), 2, d]` f32, write
    pub dgamma_partial: address,
    pub eps: f32,
    pub tokens: u32,
    pub seq_len: u32,
    pub query_heads: u32,
    /// behind the query heads of a row
    pub key_heads: u32,
    /// heads of a row, values' included
    pub row_heads: u32,
    /// tokens that share one partial sum
    pub rows: u32,
    pub reserved: u32,
}

arguments! {
    QkNormBwdArgs of qk_norm_bwd_params {
        operands { dx, raw, gamma, cos, sin, dgamma_partial }
        optional { }
        scalars { eps: f32, tokens: u32, seq_len: u32, query_heads: u32, key_heads: u32, row_heads: u32, rows: u32 }
    }
}

key! {
    /// Computes the gradient of the heads as they were, and of both gammas.
    pub struct QkNormBwd = "qk_norm.bwd" { d: u32, x: Dtype }
}

impl Kernel for QkNormBwd {
    type Params = qk_norm_bwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let row_heads = u64::from(p.row_heads);
        let d = u64::from(self.d);
        let query_heads = u64::from(p.query_heads);
        let key_heads = u64::from(p.key_heads);
        let seq_len = u64::from(p.seq_len);
        let rows = u64::from(p.rows);
        let operands = [
            Some(operand!(ReadWrite Self::Params, dx: self.x, tokens * row_heads * d)),
            Some(operand!(Read Self::Params, raw: self.x, tokens * (query_heads + key_heads) * d)),
            Some(operand!(Read Self::Params, gamma: self.x, 2 * d)),
            Some(operand!(Read Self::Params, cos: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, sin: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Write Self::Params, dgamma_partial: Dtype::F32, tokens.div_ceil(rows) * 2 * d)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `qk_norm.at`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct qk_norm_at_params {
    /// `[rows, row_heads, d]` x, update: query and key heads, in place; the rest is untouched
    pub x: address,
    /// `[2, d]` x, read: of queries, of keys
    pub gamma: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub cos: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub sin: address,
    /// `[rows]` u32, read, ids(seq_len)
    pub position: address,
    pub eps: f32,
    pub rows: u32,
    pub seq_len: u32,
    pub query_heads: u32,
    /// behind the query heads of a row
    pub key_heads: u32,
    /// heads of a row, values' included
    pub row_heads: u32,
}

arguments! {
    QkNormAtArgs of qk_norm_at_params {
        operands { x, gamma, cos, sin, position }
        optional { }
        scalars { eps: f32, rows: u32, seq_len: u32, query_heads: u32, key_heads: u32, row_heads: u32 }
    }
}

key! {
    /// Normalizes query and key heads of rows, and rotates them at positions of their own.
    pub struct QkNormAt = "qk_norm.at" { d: u32, x: Dtype }
}

impl Kernel for QkNormAt {
    type Params = qk_norm_at_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let row_heads = u64::from(p.row_heads);
        let d = u64::from(self.d);
        let seq_len = u64::from(p.seq_len);
        let operands = [
            Some(operand!(ReadWrite Self::Params, x: self.x, rows * row_heads * d)),
            Some(operand!(Read Self::Params, gamma: self.x, 2 * d)),
            Some(operand!(Read Self::Params, cos: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, sin: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, position: Dtype::U32, rows).with(Content::Ids(p.seq_len))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `qk_norm.dgrad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct qk_norm_dgrad_params {
    /// `[tokens, row_heads, d]` x, update: gradient of the rotated heads, replaced by that of `raw`
    pub dx: address,
    /// `[tokens, query_heads + key_heads, d]` x, read: what the forward pass normalized
    pub raw: address,
    /// `[2, d]` x, read: of queries, of keys
    pub gamma: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub cos: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub sin: address,
    pub eps: f32,
    pub tokens: u32,
    pub seq_len: u32,
    pub query_heads: u32,
    /// behind the query heads of a row
    pub key_heads: u32,
    /// heads of a row, values' included
    pub row_heads: u32,
}

arguments! {
    QkNormDgradArgs of qk_norm_dgrad_params {
        operands { dx, raw, gamma, cos, sin }
        optional { }
        scalars { eps: f32, tokens: u32, seq_len: u32, query_heads: u32, key_heads: u32, row_heads: u32 }
    }
}

key! {
    /// Computes the gradient of the heads where the gammas do not train.
    pub struct QkNormDgrad = "qk_norm.dgrad" { d: u32, x: Dtype }
}

impl Kernel for QkNormDgrad {
    type Params = qk_norm_dgrad_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let row_heads = u64::from(p.row_heads);
        let d = u64::from(self.d);
        let query_heads = u64::from(p.query_heads);
        let key_heads = u64::from(p.key_heads);
        let seq_len = u64::from(p.seq_len);
        let operands = [
            Some(operand!(ReadWrite Self::Params, dx: self.x, tokens * row_heads * d)),
            Some(operand!(Read Self::Params, raw: self.x, tokens * (query_heads + key_heads) * d)),
            Some(operand!(Read Self::Params, gamma: self.x, 2 * d)),
            Some(operand!(Read Self::Params, cos: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, sin: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `rmsnorm.fwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct rmsnorm_fwd_params {
    /// `[tokens, h]` x, read
    pub x: address,
    /// `[tokens, h]` x, read if residual: the branch
    pub delta: address,
    /// `[tokens, h]` x, write if residual: x + delta
    pub sum: address,
    /// `[h]` x, read
    pub gamma: address,
    /// `[tokens, h]` x, write if out.is_dense()
    pub y: address,
    /// `[tokens]` f32, write if out.is_dense()
    pub rstd: address,
    pub eps: f32,
    pub tokens: u32,
    /// `[tokens, h]` i8, write if out.is_int8(): of `y`
    pub q: address,
    /// `[tokens]` f32, write if out.is_int8()
    pub scale: address,
}

arguments! {
    RmsnormFwdArgs of rmsnorm_fwd_params {
        operands { x, gamma }
        optional { delta, sum, y, rstd, q, scale }
        scalars { eps: f32, tokens: u32 }
    }
}

key! {
    /// Normalizes rows, after adding a residual branch if `residual`.
    pub struct RmsnormFwd = "rmsnorm.fwd" { h: u32, out: Out, residual: bool, x: Dtype }
}

impl Kernel for RmsnormFwd {
    type Params = rmsnorm_fwd_params;

    fn params_bytes(&self) -> usize {
        if self.out.is_int8() { size_of::<Self::Params>() } else { offset_of!(Self::Params, q) }
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let h = u64::from(self.h);
        let operands = [
            Some(operand!(Read Self::Params, x: self.x, tokens * h)),
            self.residual.then(|| operand!(Read Self::Params, delta: self.x, tokens * h)),
            self.residual.then(|| operand!(Write Self::Params, sum: self.x, tokens * h)),
            Some(operand!(Read Self::Params, gamma: self.x, h)),
            self.out.is_dense().then(|| operand!(Write Self::Params, y: self.x, tokens * h)),
            self.out.is_dense().then(|| operand!(Write Self::Params, rstd: Dtype::F32, tokens)),
            self.out.is_int8().then(|| operand!(Write Self::Params, q: Dtype::I8, tokens * h)),
            self.out.is_int8().then(|| operand!(Write Self::Params, scale: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `rmsnorm.bwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct rmsnorm_bwd_params {
    /// `[tokens, h]` x, read
    pub dy: address,
    /// `[tokens, h]` x, read: what the forward pass normalized
    pub x: address,
    /// `[h]` x, read
    pub gamma: address,
    /// `[tokens]` f32, read, uniform(0.5, 1.5)
    pub rstd: address,
    /// `[tokens, h]` x, read if residual
    pub dresidual: address,
    /// `[tokens, h]` x, write
    pub dx: address,
    /// `[ceil(tokens / rows), h]` f32, write
    pub dgamma_partial: address,
    pub tokens: u32,
    /// rows of `x` that share one partial sum
    pub rows: u32,
    /// `[tokens, h]` i8, write if out.is_int8(): of `dx`
    pub q: address,
    /// `[tokens]` f32, write if out.is_int8()
    pub scale: address,
}

arguments! {
    RmsnormBwdArgs of rmsnorm_bwd_params {
        operands { dy, x, gamma, rstd, dx, dgamma_partial }
        optional { dresidual, q, scale }
        scalars { tokens: u32, rows: u32 }
    }
}

key! {
    /// Computes the gradient of the rows, added to the residual stream's if `residual`, and partial sums of gamma's.
    pub struct RmsnormBwd = "rmsnorm.bwd" { h: u32, out: Out, residual: bool, x: Dtype }
}

impl Kernel for RmsnormBwd {
    type Params = rmsnorm_bwd_params;

    fn params_bytes(&self) -> usize {
        if self.out.is_int8() { size_of::<Self::Params>() } else { offset_of!(Self::Params, q) }
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let h = u64::from(self.h);
        let rows = u64::from(p.rows);
        let operands = [
            Some(operand!(Read Self::Params, dy: self.x, tokens * h)),
            Some(operand!(Read Self::Params, x: self.x, tokens * h)),
            Some(operand!(Read Self::Params, gamma: self.x, h)),
            Some(operand!(Read Self::Params, rstd: Dtype::F32, tokens).with(Content::Uniform(0.5, 1.5))),
            self.residual.then(|| operand!(Read Self::Params, dresidual: self.x, tokens * h)),
            Some(operand!(Write Self::Params, dx: self.x, tokens * h)),
            Some(operand!(Write Self::Params, dgamma_partial: Dtype::F32, tokens.div_ceil(rows) * h)),
            self.out.is_int8().then(|| operand!(Write Self::Params, q: Dtype::I8, tokens * h)),
            self.out.is_int8().then(|| operand!(Write Self::Params, scale: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `rmsnorm.dgrad`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct rmsnorm_dgrad_params {
    /// `[tokens, h]` x, read
    pub dy: address,
    /// `[tokens, h]` x, read: what the forward pass normalized
    pub x: address,
    /// `[h]` x, read
    pub gamma: address,
    /// `[tokens]` f32, read, uniform(0.5, 1.5)
    pub rstd: address,
    /// `[tokens, h]` x, read if residual
    pub dresidual: address,
    /// `[tokens, h]` x, write
    pub dx: address,
    pub tokens: u32,
    pub reserved: u32,
    /// `[tokens, h]` i8, write if out.is_int8(): of `dx`
    pub q: address,
    /// `[tokens]` f32, write if out.is_int8()
    pub scale: address,
}

arguments! {
    RmsnormDgradArgs of rmsnorm_dgrad_params {
        operands { dy, x, gamma, rstd, dx }
        optional { dresidual, q, scale }
        scalars { tokens: u32 }
    }
}

key! {
    /// Computes the gradient of the rows where gamma does not train.
    pub struct RmsnormDgrad = "rmsnorm.dgrad" { h: u32, out: Out, residual: bool, x: Dtype }
}

impl Kernel for RmsnormDgrad {
    type Params = rmsnorm_dgrad_params;

    fn params_bytes(&self) -> usize {
        if self.out.is_int8() { size_of::<Self::Params>() } else { offset_of!(Self::Params, q) }
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let h = u64::from(self.h);
        let operands = [
            Some(operand!(Read Self::Params, dy: self.x, tokens * h)),
            Some(operand!(Read Self::Params, x: self.x, tokens * h)),
            Some(operand!(Read Self::Params, gamma: self.x, h)),
            Some(operand!(Read Self::Params, rstd: Dtype::F32, tokens).with(Content::Uniform(0.5, 1.5))),
            self.residual.then(|| operand!(Read Self::Params, dresidual: self.x, tokens * h)),
            Some(operand!(Write Self::Params, dx: self.x, tokens * h)),
            self.out.is_int8().then(|| operand!(Write Self::Params, q: Dtype::I8, tokens * h)),
            self.out.is_int8().then(|| operand!(Write Self::Params, scale: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `rope.fwd` and `rope.bwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct rope_params {
    /// `[tokens, row_stride]` x, update: the first heads * d of a row; the rest is untouched
    pub x: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub cos: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub sin: address,
    pub tokens: u32,
    pub seq_len: u32,
    /// query heads and key heads together: they are adjacent
    pub heads: u32,
    /// elements of a row
    pub row_stride: u32,
}

arguments! {
    RopeArgs of rope_params {
        operands { x, cos, sin }
        optional { }
        scalars { tokens: u32, seq_len: u32, heads: u32, row_stride: u32 }
    }
}

key! {
    /// Rotates query and key heads.
    pub struct RopeFwd = "rope.fwd" { d: u32, x: Dtype }
}

impl Kernel for RopeFwd {
    type Params = rope_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let row_stride = u64::from(p.row_stride);
        let seq_len = u64::from(p.seq_len);
        let d = u64::from(self.d);
        let operands = [
            Some(operand!(ReadWrite Self::Params, x: self.x, tokens * row_stride)),
            Some(operand!(Read Self::Params, cos: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, sin: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
        ];
        operands.into_iter().flatten().collect()
    }
}

key! {
    /// Rotates their gradients back.
    pub struct RopeBwd = "rope.bwd" { d: u32, x: Dtype }
}

impl Kernel for RopeBwd {
    type Params = rope_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let row_stride = u64::from(p.row_stride);
        let seq_len = u64::from(p.seq_len);
        let d = u64::from(self.d);
        let operands = [
            Some(operand!(ReadWrite Self::Params, x: self.x, tokens * row_stride)),
            Some(operand!(Read Self::Params, cos: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, sin: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `rope.at`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct rope_at_params {
    /// `[rows, row_stride]` x, update: the first heads * d of a row; the rest is untouched
    pub x: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub cos: address,
    /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
    pub sin: address,
    /// `[rows]` u32, read, ids(seq_len)
    pub position: address,
    pub rows: u32,
    pub seq_len: u32,
    /// query heads and key heads together: they are adjacent
    pub heads: u32,
    /// elements of a row
    pub row_stride: u32,
}

arguments! {
    RopeAtArgs of rope_at_params {
        operands { x, cos, sin, position }
        optional { }
        scalars { rows: u32, seq_len: u32, heads: u32, row_stride: u32 }
    }
}

key! {
    /// Rotates query and key heads of rows at positions of their own.
    pub struct RopeAt = "rope.at" { d: u32, x: Dtype }
}

impl Kernel for RopeAt {
    type Params = rope_at_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let row_stride = u64::from(p.row_stride);
        let seq_len = u64::from(p.seq_len);
        let d = u64::from(self.d);
        let operands = [
            Some(operand!(ReadWrite Self::Params, x: self.x, rows * row_stride)),
            Some(operand!(Read Self::Params, cos: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, sin: Dtype::F32, seq_len * (d / 2)).with(Content::Uniform(-1.0, 1.0))),
            Some(operand!(Read Self::Params, position: Dtype::U32, rows).with(Content::Ids(p.seq_len))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `sample`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct sample_params {
    /// `[rows, vocab]` x, read, logits(vocab)
    pub logits: address,
    /// `[rows, 2]` u32, read, ids(4294967295): number of the row's sequence, its lower half first
    pub sequence: address,
    /// `[rows]` u32, read, ids(4294967295): the row's, in its sequence
    pub position: address,
    /// `[rows]` u32, write: NO_TOKEN if a logit is not finite
    pub token: address,
    /// `[rows]` f32, write: of the token, at temperature 1; 0 if a logit is not finite
    pub log_prob: address,
    /// `[rows]` f32, write: log-sum-exp of all logits; 0 if one is not finite
    pub lse: address,
    pub seed: u64,
    pub rows: u32,
    /// at most 2^18
    pub vocab: u32,
    /// 0: the token of the largest logit
    pub temperature: f32,
    /// draws from as many tokens, the most probable ones; 0: from all
    pub top_k: u32,
    /// draws from the fewest tokens that have this share of the probability; 1: from all
    pub top_p: f32,
    pub reserved: u32,
}

arguments! {
    SampleArgs of sample_params {
        operands { logits, sequence, position, token, log_prob, lse }
        optional { }
        scalars { seed: u64, rows: u32, vocab: u32, temperature: f32, top_k: u32, top_p: f32 }
    }
}

key! {
    /// Draws a token of each row of logits.
    pub struct Sample = "sample" { x: Dtype }
}

impl Kernel for Sample {
    type Params = sample_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, logits: self.x, rows * vocab).with(Content::Logits(p.vocab))),
            Some(operand!(Read Self::Params, sequence: Dtype::U32, rows * 2).with(Content::Ids(4294967295))),
            Some(operand!(Read Self::Params, position: Dtype::U32, rows).with(Content::Ids(4294967295))),
            Some(operand!(Write Self::Params, token: Dtype::U32, rows)),
            Some(operand!(Write Self::Params, log_prob: Dtype::F32, rows)),
            Some(operand!(Write Self::Params, lse: Dtype::F32, rows)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `sample.advance`.
/// A row whose sequence ends is idle from then on, and its last token and position stay. So is a row for which no
/// token was drawn; its `end` says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct sample_advance_params {
    /// `[rows]` u32, read, targets(64): drawn after the row's own token, or NO_TOKEN
    pub token: address,
    /// `[rows]` f32, read: of the token
    pub log_prob: address,
    /// `[rows]` f32, read: log-sum-exp of the logits that it was drawn from
    pub lse: address,
    /// `[rows]` u32, update, ids(seq_len): tokens that the row's sequence has at most; NO_TOKEN once none was drawn
    pub end: address,
    /// `[stops]` u32, read, ids(64): tokens that end a sequence
    pub stop: address,
    /// `[rows]` u32, update, slots(slots): the row's sequence, or IDLE_SLOT
    pub slot: address,
    /// `[rows]` u32, update, ids(seq_len): the row's, in its sequence
    pub position: address,
    /// `[rows]` u32, update, ids(64): the row's token
    pub id: address,
    /// `[slots, seq_len]` u32, update, ids(64): tokens of the sequences; those of other positions are untouched
    pub tokens: address,
    /// `[slots, seq_len]` f32, update: of these tokens
    pub log_probs: address,
    /// `[slots, seq_len]` f32, update: of the logits that they were drawn from
    pub lses: address,
    pub rows: u32,
    /// sequences that there is room for
    pub slots: u32,
    /// positions of each
    pub seq_len: u32,
    pub stops: u32,
}

arguments! {
    SampleAdvanceArgs of sample_advance_params {
        operands { token, log_prob, lse, end, stop, slot, position, id, tokens, log_probs, lses }
        optional { }
        scalars { rows: u32, slots: u32, seq_len: u32, stops: u32 }
    }
}

key! {
    /// Moves rows on to the tokens that were drawn for them.
    pub struct SampleAdvance = "sample.advance" {  }
}

impl Kernel for SampleAdvance {
    type Params = sample_advance_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let stops = u64::from(p.stops);
        let slots = u64::from(p.slots);
        let seq_len = u64::from(p.seq_len);
        let operands = [
            Some(operand!(Read Self::Params, token: Dtype::U32, rows).with(Content::Targets(64))),
            Some(operand!(Read Self::Params, log_prob: Dtype::F32, rows)),
            Some(operand!(Read Self::Params, lse: Dtype::F32, rows)),
            Some(operand!(ReadWrite Self::Params, end: Dtype::U32, rows).with(Content::Ids(p.seq_len))),
            Some(operand!(Read Self::Params, stop: Dtype::U32, stops).with(Content::Ids(64))),
            Some(operand!(ReadWrite Self::Params, slot: Dtype::U32, rows).with(Content::Slots(p.slots))),
            Some(operand!(ReadWrite Self::Params, position: Dtype::U32, rows).with(Content::Ids(p.seq_len))),
            Some(operand!(ReadWrite Self::Params, id: Dtype::U32, rows).with(Content::Ids(64))),
            Some(operand!(ReadWrite Self::Params, tokens: Dtype::U32, slots * seq_len).with(Content::Ids(64))),
            Some(operand!(ReadWrite Self::Params, log_probs: Dtype::F32, slots * seq_len)),
            Some(operand!(ReadWrite Self::Params, lses: Dtype::F32, slots * seq_len)),
        ];
        operands.into_iter().flatten().collect()
    }

    fn bytes(&self, p: &Self::Params) -> u64 {
        let rows = u64::from(p.rows);
        rows * 44
    }
}

/// Parameter block of `sample.score`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct sample_score_params {
    /// `[rows, vocab]` x, read, logits(vocab)
    pub logits: address,
    /// `[rows]` u32, read, targets(vocab): MASKED_TOKEN of a row that is not read
    pub token: address,
    /// `[rows]` f32, write: of the token, at temperature 1; 0 if it is masked or a logit is not finite
    pub log_prob: address,
    /// `[rows]` f32, write: log-sum-exp of all logits; 0 likewise
    pub lse: address,
    pub rows: u32,
    /// at most 2^18
    pub vocab: u32,
}

arguments! {
    SampleScoreArgs of sample_score_params {
        operands { logits, token, log_prob, lse }
        optional { }
        scalars { rows: u32, vocab: u32 }
    }
}

key! {
    /// Computes log-probabilities of given tokens, with the bits that `sample` has of tokens that it draws.
    pub struct SampleScore = "sample.score" { x: Dtype }
}

impl Kernel for SampleScore {
    type Params = sample_score_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let vocab = u64::from(p.vocab);
        let operands = [
            Some(operand!(Read Self::Params, logits: self.x, rows * vocab).with(Content::Logits(p.vocab))),
            Some(operand!(Read Self::Params, token: Dtype::U32, rows).with(Content::Targets(p.vocab))),
            Some(operand!(Write Self::Params, log_prob: Dtype::F32, rows)),
            Some(operand!(Write Self::Params, lse: Dtype::F32, rows)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `sample.top`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct sample_top_params {
    /// `[rows, vocab]` x, read
    pub logits: address,
    /// `[rows, keep]` u32, write: the most likely token first; of equal ones the smallest
    pub ids: address,
    /// `[rows, keep + 1]` f32, write: at `temperature`, nats; the last entry is for the remaining tokens combined
    pub log_probs: address,
    pub rows: u32,
    pub vocab: u32,
    /// below `vocab`, at most MOST_KEPT
    pub keep: u32,
    pub temperature: f32,
}

arguments! {
    SampleTopArgs of sample_top_params {
        operands { logits, ids, log_probs }
        optional { }
        scalars { rows: u32, vocab: u32, keep: u32, temperature: f32 }
    }
}

key! {
    /// Computes log-probabilities of the most likely tokens of each row, and of the remaining tokens combined.
    pub struct SampleTop = "sample.top" { x: Dtype }
}

impl Kernel for SampleTop {
    type Params = sample_top_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let rows = u64::from(p.rows);
        let vocab = u64::from(p.vocab);
        let keep = u64::from(p.keep);
        let operands = [
            Some(operand!(Read Self::Params, logits: self.x, rows * vocab)),
            Some(operand!(Write Self::Params, ids: Dtype::U32, rows * keep)),
            Some(operand!(Write Self::Params, log_probs: Dtype::F32, rows * (keep + 1))),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `swiglu.fwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct swiglu_fwd_params {
    /// `[tokens, 2 * n]` x, read: gate, then up
    pub gate_up: address,
    /// `[tokens, n]` x, write if out.is_dense()
    pub y: address,
    pub tokens: u32,
    pub n: u32,
    /// `[tokens, n]` i8, write if out.is_int8(): of `y`
    pub q: address,
    /// `[tokens]` f32, write if out.is_int8()
    pub scale: address,
}

arguments! {
    SwigluFwdArgs of swiglu_fwd_params {
        operands { gate_up }
        optional { y, q, scale }
        scalars { tokens: u32, n: u32 }
    }
}

key! {
    /// Gates the up projection.
    pub struct SwigluFwd = "swiglu.fwd" { n: Option<u32>, out: Out, x: Dtype }
}

impl Kernel for SwigluFwd {
    type Params = swiglu_fwd_params;

    fn params_bytes(&self) -> usize {
        if self.out.is_int8() { size_of::<Self::Params>() } else { offset_of!(Self::Params, q) }
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let n = u64::from(p.n);
        let operands = [
            Some(operand!(Read Self::Params, gate_up: self.x, tokens * (2 * n))),
            self.out.is_dense().then(|| operand!(Write Self::Params, y: self.x, tokens * n)),
            self.out.is_int8().then(|| operand!(Write Self::Params, q: Dtype::I8, tokens * n)),
            self.out.is_int8().then(|| operand!(Write Self::Params, scale: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Parameter block of `swiglu.bwd`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C)]
pub struct swiglu_bwd_params {
    /// `[tokens, 2 * n]` x, read: gate, then up
    pub gate_up: address,
    /// `[tokens, n]` x, read
    pub dy: address,
    /// `[tokens, 2 * n]` x, write
    pub dgate_up: address,
    pub tokens: u32,
    pub n: u32,
    /// `[tokens, 2 * n]` i8, write if out.is_int8(): of `dgate_up`
    pub q: address,
    /// `[tokens]` f32, write if out.is_int8()
    pub scale: address,
}

arguments! {
    SwigluBwdArgs of swiglu_bwd_params {
        operands { gate_up, dy, dgate_up }
        optional { q, scale }
        scalars { tokens: u32, n: u32 }
    }
}

key! {
    /// Computes the gradients of gate and up.
    pub struct SwigluBwd = "swiglu.bwd" { n: Option<u32>, out: Out, x: Dtype }
}

impl Kernel for SwigluBwd {
    type Params = swiglu_bwd_params;

    fn params_bytes(&self) -> usize {
        if self.out.is_int8() { size_of::<Self::Params>() } else { offset_of!(Self::Params, q) }
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let tokens = u64::from(p.tokens);
        let n = u64::from(p.n);
        let operands = [
            Some(operand!(Read Self::Params, gate_up: self.x, tokens * (2 * n))),
            Some(operand!(Read Self::Params, dy: self.x, tokens * n)),
            Some(operand!(Write Self::Params, dgate_up: self.x, tokens * (2 * n))),
            self.out.is_int8().then(|| operand!(Write Self::Params, q: Dtype::I8, tokens * (2 * n))),
            self.out.is_int8().then(|| operand!(Write Self::Params, scale: Dtype::F32, tokens)),
        ];
        operands.into_iter().flatten().collect()
    }
}

/// Every kernel, in the order of operations.
pub const OPS: &[Op] = &[
    Op::of::<AdamwUpdate>(),
    Op::of::<Add>(),
    Op::of::<AttentionBwd>(),
    Op::of::<AttentionDecode>(),
    Op::of::<AttentionDelta>(),
    Op::of::<AttentionFwd>(),
    Op::of::<BitsCompare>(),
    Op::of::<Cast>(),
    Op::of::<ColumnSumFinish>(),
    Op::of::<ColumnSumPartial>(),
    Op::of::<Dequant>(),
    Op::of::<EmbeddingBwd>(),
    Op::of::<EmbeddingFwd>(),
    Op::of::<Fill>(),
    Op::of::<GemmDgrad>(),
    Op::of::<GemmFwd>(),
    Op::of::<GemmSwiglu>(),
    Op::of::<GemmWgrad>(),
    Op::of::<GradDistancePartial>(),
    Op::of::<GradNormFinish>(),
    Op::of::<GradNormPartial>(),
    Op::of::<HeadCe>(),
    Op::of::<HeadCompare>(),
    Op::of::<HeadDistill>(),
    Op::of::<HeadJsd>(),
    Op::of::<HeadMetrics>(),
    Op::of::<HeadNll>(),
    Op::of::<HeadTopk>(),
    Op::of::<Int8Columns>(),
    Op::of::<Int8Quantize>(),
    Op::of::<KvStore>(),
    Op::of::<LoraDgradA>(),
    Op::of::<LoraDgradB>(),
    Op::of::<LoraFwdA>(),
    Op::of::<LoraFwdB>(),
    Op::of::<LoraWgrad>(),
    Op::of::<QkNormAt>(),
    Op::of::<QkNormBwd>(),
    Op::of::<QkNormDgrad>(),
    Op::of::<QkNormFwd>(),
    Op::of::<RmsnormBwd>(),
    Op::of::<RmsnormDgrad>(),
    Op::of::<RmsnormFwd>(),
    Op::of::<RopeAt>(),
    Op::of::<RopeBwd>(),
    Op::of::<RopeFwd>(),
    Op::of::<Sample>(),
    Op::of::<SampleAdvance>(),
    Op::of::<SampleScore>(),
    Op::of::<SampleTop>(),
    Op::of::<SwigluBwd>(),
    Op::of::<SwigluFwd>(),
];
