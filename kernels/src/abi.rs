//! Parameter blocks and kernels, of the C headers of `kernels/src`.
//!
//! Not edited by hand: `cargo xtask abi` regenerates it.
// Headers: 742327dfe0e6bd692b3f0826a834000c4dcbddbafe9cba604462f182bb8603f4
// Body: d8118542fb04aeae205ef742d08a087156fa816498b768d05a488feeea1e9869
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(clippy::nonminimal_bool, dead_code, missing_docs, non_camel_case_types, unused_imports)]

pub use precast_core::abi::{address, tensor_map};
use precast_core::{Block, Content, Dtype, Format, Scalar, operations, parameters};
use super::Flag;
use super::Gamma;
use super::Gate;
use super::Moments;
use super::Out;

pub const MASKED_TOKEN: u32 = 4294967295;

pub const IDLE_SLOT: u32 = 4294967295;

pub const CONV_TAPS: u32 = 4;

pub const DELTA_CHUNK: u32 = 64;

pub const DELTA_HEAD: u32 = 128;

pub const DELTA_BLOCK: u32 = 16;

pub const SCALE_CANDIDATES: u32 = 7;

pub const SCALED_ELEMS: u32 = 32;

pub const SCALED_ELEMS_Q6_K: u32 = 16;

pub const EXPERT_TILE: u32 = 128;

pub const MOST_KEPT: u32 = 1024;

pub const NO_TOKEN: u32 = 4294967295;

pub const LORA_PARTS: u32 = 4;

pub const ROUTE_GROUP: u32 = 64;

parameters! {
    /// One micro-batch.
    pub struct micro_scalars {
        /// uniform(0.1, 1.0): 1 / (counted tokens over all micro-batches of the step)
        loss_scale: f32 = Scalar::Uniform(0.1, 1.0);
        /// below(2): 0 in the first micro-batch of a step: gradients are overwritten, not added to
        accumulate: u32 = Scalar::Below(2);
    }
}

parameters! {
    /// One optimizer update.
    pub struct update_scalars {
        /// 1e-3
        lr: f32 = Scalar::Float(1e-3);
        /// uniform(0.1, 1.0): 1 - beta1^step
        bias_correction1: f32 = Scalar::Uniform(0.1, 1.0);
        /// uniform(0.1, 1.0): 1 - beta2^step
        bias_correction2: f32 = Scalar::Uniform(0.1, 1.0);
        /// below(1000000): from 1
        step: u32 = Scalar::Below(1000000);
    }
}

parameters! {
    /// Metrics of a step.
    pub struct step_metrics {
        /// 1.0: mean over counted tokens, nats, without T^2
        kd_loss: f32 = Scalar::Float(1.0);
        /// 2.0: mean over counted tokens, nats
        ce_loss: f32 = Scalar::Float(2.0);
        /// 3.0: L2 norm over all gradients, before clipping
        grad_norm: f32 = Scalar::Float(3.0);
        /// uniform(0.1, 1.0): what gradients are multiplied by
        clip_scale: f32 = Scalar::Uniform(0.1, 1.0);
        /// 0: 1 if the norm was not finite and the weights were left alone
        skipped: u32 = Scalar::Word(0);
        reserved: u32 = Scalar::Word(0);
    }
}

parameters! {
    /// Parameter block of `adamw.update`.
    pub struct adamw_params, AdamwArgs {
        /// `[n]` f32, read
        operand grad(Read => Dtype::F32, n);
        /// update_scalars, read
        operand update(Read => Dtype::U32, 4, Content::Scalars(update_scalars::CHECKED));
        /// step_metrics, read: `clip_scale`, `skipped`
        operand metrics(Read => Dtype::F32, 6, Content::Scalars(step_metrics::CHECKED));
        /// `[n]` f32, update
        operand master(ReadWrite => Dtype::F32, n);
        /// `[n]` moments.dtype(), update
        operand m(ReadWrite => self.moments.dtype(), n);
        /// `[n]` moments.dtype(), update, uniform(0.0, 1.0)
        operand v(ReadWrite => self.moments.dtype(), n, Content::Uniform(0.0, 1.0));
        /// `[n]` bf16, update if w == bf16: copy of `master`
        optional weights(ReadWrite if self.w == Dtype::Bf16 => Dtype::Bf16, n);
        /// elements
        scalar n(u64);
        /// elements that decay, the first ones: matrices lie before vectors
        scalar decayed(u64);
        scalar beta1(f32);
        scalar beta2(f32);
        scalar eps(f32);
        scalar weight_decay(f32);
        /// if moments.are_rounded(): index of the first element in all that trains
        scalar first(u64);
    }
    |self, p| [n = p.n] {
        before first unless self.moments.are_rounded();
    }
    /// Updates the master weights; with `w=bf16` also writes the working copy.
    kernel AdamwUpdate = "adamw.update" { moments: Moments, w: Dtype };
}

parameters! {
    /// Parameter block of `add`.
    pub struct add_params, AddArgs {
        /// `[n]` f32, read
        operand x(Read => Dtype::F32, n);
        /// `[n]` f32, update
        operand y(ReadWrite => Dtype::F32, n);
        /// elements
        scalar n(u64);
    }
    |self, p| [n = p.n] {}
    /// Adds elements.
    kernel Add = "add" {};
}

parameters! {
    /// Parameter block of `attention.fwd`.
    /// Each token is one of a sequence, and sees no other: its own key and those before it, `window` of them at most.
    /// A launch of full sequences has so many operations; others have fewer.
    pub struct attention_fwd_params, AttentionFwdArgs {
        /// `[tokens, heads + 2 * kv_heads, d]` x, read: queries of a row, then keys, then values
        operand qkv(Read => self.x, tokens * (heads + 2 * kv_heads) * d);
        /// `[count, 2]` u32, read, sequences(tokens, seq_len): first place and length, longest first
        operand sequences(Read => Dtype::U32, count * 2, Content::Sequences(p.tokens, p.seq_len));
        /// `[tokens, heads, d]` x, write
        operand o(Write => self.x, tokens * heads * d);
        /// `[heads, tokens]` f32, write: log-sum-exp of the scaled scores
        operand lse(Write => Dtype::F32, heads * tokens);
        scalar tokens(u32);
        /// sequences at most; those behind the last have no tokens
        scalar count(u32);
        /// tokens of a sequence at most
        scalar seq_len(u32);
        /// query heads
        scalar heads(u32);
        /// key and value heads
        scalar kv_heads(u32);
        /// factor of the scores
        scalar scale(f32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, kv_heads = p.kv_heads, d = self.d, count = p.count] {
        flops = 4 * d * (self.seen(p) * tokens / 2) * heads;
    }
    /// Attends, and keeps the log-sum-exp of the scores.
    kernel AttentionFwd = "attention.fwd" { d: u32, window: Option<u32>, x: Dtype };
}

parameters! {
    /// Parameter block of `attention.delta`.
    pub struct attention_delta_params, AttentionDeltaArgs {
        /// `[tokens, heads, d]` x, read
        operand o(Read => self.x, tokens * heads * d);
        /// `[tokens, heads, d]` x, read
        operand d_o(Read => self.x, tokens * heads * d);
        /// `[heads, tokens]` f32, write
        operand delta(Write => Dtype::F32, heads * tokens);
        scalar tokens(u32);
        /// query heads
        scalar heads(u32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, d = self.d] {}
    /// Sums output times output gradient over each row.
    kernel AttentionDelta = "attention.delta" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `attention.bwd`.
    /// Checks put `lse` above any score, so that probabilities stay below one as in a real backward pass.
    pub struct attention_bwd_params, AttentionBwdArgs {
        /// `[tokens, heads + 2 * kv_heads, d]` x, read
        operand qkv(Read => self.x, tokens * (heads + 2 * kv_heads) * d);
        /// `[count, 2]` u32, read, sequences(tokens, seq_len): first place and length, longest first
        operand sequences(Read => Dtype::U32, count * 2, Content::Sequences(p.tokens, p.seq_len));
        /// `[tokens, heads, d]` x, read
        operand d_o(Read => self.x, tokens * heads * d);
        /// `[heads, tokens]` f32, read, uniform(4.0, 6.0)
        operand lse(Read => Dtype::F32, heads * tokens, Content::Uniform(4.0, 6.0));
        /// `[heads, tokens]` f32, read: row sums of `o * d_o`
        operand delta(Read => Dtype::F32, heads * tokens);
        /// `[tokens, heads + 2 * kv_heads, d]` x, write: laid out as `qkv`
        operand dqkv(Write => self.x, tokens * (heads + 2 * kv_heads) * d);
        scalar tokens(u32);
        /// sequences at most; those behind the last have no tokens
        scalar count(u32);
        /// tokens of a sequence at most
        scalar seq_len(u32);
        /// query heads
        scalar heads(u32);
        /// key and value heads
        scalar kv_heads(u32);
        /// factor of the scores
        scalar scale(f32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, kv_heads = p.kv_heads, d = self.d, count = p.count] {
        flops = 10 * d * (self.seen(p) * tokens / 2) * heads;
    }
    /// Computes the gradients of queries, keys and values.
    kernel AttentionBwd = "attention.bwd" { d: u32, window: Option<u32>, x: Dtype };
}

parameters! {
    /// Parameter block of `kv.store`.
    /// No two rows have the same slot and position.
    pub struct kv_store_params, KvStoreArgs {
        /// `[rows, heads + 2 * kv_heads, d]` x, read: in each row all query heads, then keys, then values
        operand qkv(Read => self.x, rows * (heads + 2 * kv_heads) * d);
        /// `[rows]` u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT
        operand slot(Read => Dtype::U32, rows, Content::Slots(p.slots));
        /// `[rows]` u32, read, ids(seq_len): the row's, in its sequence
        operand position(Read => Dtype::U32, rows, Content::Ids(p.seq_len));
        /// `[slots, kv_heads, seq_len, d]` x, update: those of other positions are untouched
        operand keys(ReadWrite => self.x, slots * kv_heads * seq_len * d);
        /// `[slots, kv_heads, seq_len, d]` x, update: those of other positions are untouched
        operand values(ReadWrite => self.x, slots * kv_heads * seq_len * d);
        scalar rows(u32);
        /// sequences that the pool has room for
        scalar slots(u32);
        /// positions of each
        scalar seq_len(u32);
        /// query heads
        scalar heads(u32);
        /// key and value heads
        scalar kv_heads(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, heads = p.heads, kv_heads = p.kv_heads, d = self.d, slots = p.slots, seq_len =
    p.seq_len] {
        bytes = rows * (8 + 4 * kv_heads * d * self.x.bytes());
    }
    /// Stores keys and values of rows in a pool.
    kernel KvStore = "kv.store" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `attention.decode`.
    /// The row at a position has the bits of that row of `attention.fwd`. Its own key and value are in the pool.
    pub struct attention_decode_params, AttentionDecodeArgs {
        /// `[rows, heads + 2 * kv_heads, d]` x, read: in each row all query heads; keys and values are not read
        operand qkv(Read => self.x, rows * (heads + 2 * kv_heads) * d);
        /// `[rows]` u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT
        operand slot(Read => Dtype::U32, rows, Content::Slots(p.slots));
        /// `[rows]` u32, read, ids(seq_len): the row's, in its sequence
        operand position(Read => Dtype::U32, rows, Content::Ids(p.seq_len));
        /// `[slots, kv_heads, seq_len, d]` x, read
        operand keys(Read => self.x, slots * kv_heads * seq_len * d);
        /// `[slots, kv_heads, seq_len, d]` x, read
        operand values(Read => self.x, slots * kv_heads * seq_len * d);
        /// `[rows, heads, d]` x, write: zeros for an idle slot
        operand o(Write => self.x, rows * heads * d);
        scalar rows(u32);
        /// sequences that the pool has room for
        scalar slots(u32);
        /// positions of each
        scalar seq_len(u32);
        /// query heads
        scalar heads(u32);
        /// key and value heads
        scalar kv_heads(u32);
        /// factor of the scores
        scalar scale(f32);
        /// 1 if no two rows share a slot: earlier keys are there before the launch in front ends
        scalar is_step(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, heads = p.heads, kv_heads = p.kv_heads, d = self.d, slots = p.slots, seq_len =
    p.seq_len] {
        bytes = rows * (8 + (2 * heads + kv_heads * self.seen(p)) * d * self.x.bytes());
    }
    /// Attends from rows to the keys of their slots up to their positions.
    kernel AttentionDecode = "attention.decode" { d: u32, window: Option<u32>, x: Dtype };
}

parameters! {
    /// Parameter block of `bits.compare`.
    /// NaN and zeros of two signs compare as bits. No two rows have the same slot and position.
    pub struct bits_compare_params, BitsCompareArgs {
        /// `[rows, vocab]` x, read, few()
        operand found(Read => self.x, rows * vocab, Content::Few);
        /// `[slots, seq_len, vocab]` x, read, few()
        operand expected(Read => self.x, slots * seq_len * vocab, Content::Few);
        /// `[rows]` u32, read, slots(slots): the row's sequence, or IDLE_SLOT: nothing is compared
        operand slot(Read => Dtype::U32, rows, Content::Slots(p.slots));
        /// `[rows]` u32, read, ids(seq_len): the row's, in its sequence
        operand position(Read => Dtype::U32, rows, Content::Ids(p.seq_len));
        /// `[slots, seq_len]` u32, update, ids(64): elements compared; those of other places are untouched
        operand compared(ReadWrite => Dtype::U32, slots * seq_len, Content::Ids(64));
        /// `[slots, seq_len]` u32, update, ids(64): elements of these whose bits differ
        operand differing(ReadWrite => Dtype::U32, slots * seq_len, Content::Ids(64));
        scalar rows(u32);
        /// sequences that are expected
        scalar slots(u32);
        /// positions of each
        scalar seq_len(u32);
        scalar vocab(u32);
    }
    |self, p| [rows = p.rows, vocab = p.vocab, slots = p.slots, seq_len = p.seq_len] {
        bytes = rows * (16 + 2 * vocab * self.x.bytes());
    }
    /// Counts elements of rows whose bits are not those expected at their places in sequences.
    kernel BitsCompare = "bits.compare" { x: Dtype };
}

parameters! {
    /// Parameter block of `cast`.
    pub struct cast_params, CastArgs {
        /// `[n]` from, read
        operand x(Read => self.from, n);
        /// `[n]` to, write
        operand y(Write => self.to, n);
        /// elements
        scalar n(u64);
    }
    |self, p| [n = p.n] {}
    /// Casts elements, rounding to nearest even.
    kernel Cast = "cast" { from: Dtype, to: Dtype };
}

parameters! {
    /// Parameter block of `column_sum.partial`.
    pub struct column_sum_partial_params, ColumnSumPartialArgs {
        /// `[rows, n]` x, read
        operand x(Read => self.x, rows * n);
        /// `[ceil(rows / group), n]` f32, write
        operand partial(Write => Dtype::F32, rows.div_ceil(group) * n);
        scalar rows(u32);
        scalar n(u32);
        /// rows of `x` that share one partial sum
        scalar group(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, n = p.n, group = p.group] {}
    /// Sums each column over groups of rows.
    kernel ColumnSumPartial = "column_sum.partial" { x: Dtype };
}

parameters! {
    /// Parameter block of `column_sum.finish`.
    pub struct column_sum_finish_params, ColumnSumFinishArgs {
        /// `[rows, n]` f32, read
        operand partial(Read => Dtype::F32, rows * n);
        /// micro_scalars, read
        operand micro(Read => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// `[n]` f32, update
        operand grad(ReadWrite => Dtype::F32, n);
        scalar rows(u32);
        scalar n(u32);
    }
    |self, p| [rows = p.rows, n = p.n] {}
    /// Adds the groups up into a gradient.
    kernel ColumnSumFinish = "column_sum.finish" {};
}

parameters! {
    /// Parameter block of `conv.fwd`.
    pub struct conv_fwd_params, ConvFwdArgs {
        /// `[tokens, row_columns]` x, read: channels, and what else there is in a row
        operand x(Read => self.x, tokens * row_columns);
        /// `[channels, 4]` x, read: of the third token before, up to the token itself
        operand weight(Read => self.x, channels * 4);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[tokens, channels]` x, write
        operand y(Write => self.x, tokens * channels);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar channels(u32);
        scalar row_columns(u32);
    }
    |self, p| [tokens = p.tokens, row_columns = p.row_columns, channels = p.channels] {}
    /// Convolves each channel causally within its sequence, over 4 tokens, and applies SiLU.
    kernel ConvFwd = "conv.fwd" { x: Dtype };
}

parameters! {
    /// Parameter block of `conv.bwd`.
    pub struct conv_bwd_params, ConvBwdArgs {
        /// `[tokens, row_columns]` x, read: channels, and what else there is in a row
        operand x(Read => self.x, tokens * row_columns);
        /// `[channels, 4]` x, read: of the third token before, up to the token itself
        operand weight(Read => self.x, channels * 4);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[tokens, channels]` x, read
        operand dy(Read => self.x, tokens * channels);
        /// `[tokens, row_columns]` x, update: gradient of the channels; the rest is untouched
        operand dx(ReadWrite => self.x, tokens * row_columns);
        /// `[ceil(tokens / rows), channels, 4]` f32, write
        operand dweight_partial(Write => Dtype::F32, tokens.div_ceil(rows) * channels * 4);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar channels(u32);
        scalar row_columns(u32);
        /// tokens that share one partial sum
        scalar rows(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, row_columns = p.row_columns, channels = p.channels, rows = p.rows] {}
    /// Computes the gradient of the channels, and sums that of the weight over `rows` tokens.
    kernel ConvBwd = "conv.bwd" { x: Dtype };
}

parameters! {
    /// Parameter block of `conv.dgrad`.
    pub struct conv_dgrad_params, ConvDgradArgs {
        /// `[tokens, row_columns]` x, read: channels, and what else there is in a row
        operand x(Read => self.x, tokens * row_columns);
        /// `[channels, 4]` x, read: of the third token before, up to the token itself
        operand weight(Read => self.x, channels * 4);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[tokens, channels]` x, read
        operand dy(Read => self.x, tokens * channels);
        /// `[tokens, row_columns]` x, update: gradient of the channels; the rest is untouched
        operand dx(ReadWrite => self.x, tokens * row_columns);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar channels(u32);
        scalar row_columns(u32);
    }
    |self, p| [tokens = p.tokens, row_columns = p.row_columns, channels = p.channels] {}
    /// Computes the gradient of the channels where the weight does not train.
    kernel ConvDgrad = "conv.dgrad" { x: Dtype };
}

parameters! {
    /// Parameter block of `conv.decode`.
    /// A row has the bits of that row of `conv.fwd`.
    pub struct conv_decode_params, ConvDecodeArgs {
        /// `[rows, row_columns]` x, read: channels, and what else there is in a row
        operand x(Read => self.x, rows * row_columns);
        /// `[channels, 4]` x, read: of the third token before, up to the token itself
        operand weight(Read => self.x, channels * 4);
        /// `[rows]` u32, read, runs(slots, seq_len): the row's sequence in the pool, or IDLE_SLOT
        operand slot(Read => Dtype::U32, rows, Content::Runs(p.slots, p.seq_len));
        /// `[rows]` u32, read, steps(slot, seq_len, 64): the row's, in its sequence
        operand position(Read => Dtype::U32, rows, Content::Steps("slot", p.seq_len, 64));
        /// `[slots, 3, channels]` x, update: the last tokens of a sequence; other slots are untouched
        operand history(ReadWrite => self.x, slots * 3 * channels);
        /// `[rows, channels]` x, write: zeros for an idle slot
        operand y(Write => self.x, rows * channels);
        scalar rows(u32);
        /// sequences that the pool has room for
        scalar slots(u32);
        /// positions of each
        scalar seq_len(u32);
        scalar channels(u32);
        scalar row_columns(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, row_columns = p.row_columns, channels = p.channels, slots = p.slots] {
        bytes = rows * (8 + (2 * 3 + 2) * channels * self.x.bytes());
    }
    /// Convolves rows with the tokens before them in their slots, and applies SiLU.
    kernel ConvDecode = "conv.decode" { x: Dtype };
}

parameters! {
    /// Parameter block of `delta_rule.solve`.
    pub struct delta_rule_solve_params, DeltaRuleSolveArgs {
        /// `[tokens, 2 * key_heads + value_heads, 128]` x, read: queries of a row, then keys, then values
        operand qkv(Read => self.x, tokens * (2 * key_heads + value_heads) * 128);
        /// `[tokens, gate_columns]` x, read: `b` of value heads from column `b_column`, then `a`
        operand gates(Read => self.x, tokens * gate_columns);
        /// `[2, value_heads]` f32, read: `a_log`, then `dt_bias`
        operand rates(Read => Dtype::F32, 2 * value_heads);
        /// `[count, 2]` u32, read, sequences(tokens, seq_len): first place and length, longest first
        operand sequences(Read => Dtype::U32, count * 2, Content::Sequences(p.tokens, p.seq_len));
        /// `[tokens, value_heads]` f32, write: log of all decays in the chunk up to the token's own
        operand decay(Write => Dtype::F32, tokens * value_heads);
        /// `[tokens, value_heads]` f32, write: step size
        operand beta(Write => Dtype::F32, tokens * value_heads);
        /// `[tokens, 2, key_heads]` f32, write: factors that normalize queries and keys
        operand scale(Write => Dtype::F32, tokens * 2 * key_heads);
        /// `[tokens, value_heads, 64]` x, write: rows of (I + A)^-1, zeros behind the diagonal
        operand inverse(Write => self.x, tokens * value_heads * 64);
        /// `[tokens, value_heads, 64]` x, write: rows of decayed scores, zeros behind the diagonal
        operand scores(Write => self.x, tokens * value_heads * 64);
        scalar tokens(u32);
        /// sequences at most; those behind the last have no tokens
        scalar count(u32);
        /// tokens of a sequence at most
        scalar seq_len(u32);
        /// query and key heads
        scalar key_heads(u32);
        /// a multiple of them
        scalar value_heads(u32);
        /// elements of a row of `gates`
        scalar gate_columns(u32);
        scalar b_column(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, key_heads = p.key_heads, value_heads = p.value_heads, gate_columns = p.gate_columns,
    count = p.count] {
        flops = 4 * 64 * 128 * tokens * value_heads;
    }
    /// Computes what a chunk of 64 tokens takes of itself alone: its decays, step sizes, scales of queries and keys,
    /// the inverse of its triangular system, and its scores.
    kernel DeltaRuleSolve = "delta_rule.solve" { x: Dtype };
}

parameters! {
    /// Parameter block of `delta_rule.fwd`.
    pub struct delta_rule_fwd_params, DeltaRuleFwdArgs {
        /// `[tokens, 2 * key_heads + value_heads, 128]` x, read: queries of a row, then keys, then values
        operand qkv(Read => self.x, tokens * (2 * key_heads + value_heads) * 128);
        /// `[count, 2]` u32, read, sequences(tokens, seq_len): first place and length, longest first
        operand sequences(Read => Dtype::U32, count * 2, Content::Sequences(p.tokens, p.seq_len));
        /// `[tokens, value_heads]` f32, read, uniform(-2.0, 0.0)
        operand decay(Read => Dtype::F32, tokens * value_heads, Content::Uniform(-2.0, 0.0));
        /// `[tokens, value_heads]` f32, read, uniform(0.0, 1.0)
        operand beta(Read => Dtype::F32, tokens * value_heads, Content::Uniform(0.0, 1.0));
        /// `[tokens, 2, key_heads]` f32, read, uniform(0.05, 0.1)
        operand scale(Read => Dtype::F32, tokens * 2 * key_heads, Content::Uniform(0.05, 0.1));
        /// `[tokens, value_heads, 64]` x, read, normal(0.1)
        operand inverse(Read => self.x, tokens * value_heads * 64, Content::Normal(0.1));
        /// `[tokens, value_heads, 64]` x, read, normal(0.1)
        operand scores(Read => self.x, tokens * value_heads * 64, Content::Normal(0.1));
        /// `[tokens, value_heads, 128]` x, write
        operand o(Write => self.x, tokens * value_heads * 128);
        /// `[tokens, value_heads, 128]` x, write if keep: what is written to the state
        optional v_new(Write if self.keep => self.x, tokens * value_heads * 128);
        /// `[ceil(tokens / 64), value_heads, 128, 128]` x, part if keep: behind full chunks but the last
        optional states(WritePart if self.keep => self.x, tokens.div_ceil(64) * value_heads * 128 * 128);
        scalar tokens(u32);
        /// sequences at most; those behind the last have no tokens
        scalar count(u32);
        /// tokens of a sequence at most
        scalar seq_len(u32);
        /// query and key heads
        scalar key_heads(u32);
        /// a multiple of them
        scalar value_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, key_heads = p.key_heads, value_heads = p.value_heads, count = p.count] {
        flops = (6 * 128 + 4 * 64) * 128 * tokens * value_heads;
    }
    /// Applies the states before each chunk and its own tokens, and moves the state from chunk to chunk.
    kernel DeltaRuleFwd = "delta_rule.fwd" { keep: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `delta_rule.state_bwd`.
    pub struct delta_rule_state_bwd_params, DeltaRuleStateBwdArgs {
        /// `[tokens, 2 * key_heads + value_heads, 128]` x, read: queries of a row, then keys, then values
        operand qkv(Read => self.x, tokens * (2 * key_heads + value_heads) * 128);
        /// `[count, 2]` u32, read, sequences(tokens, seq_len): first place and length, longest first
        operand sequences(Read => Dtype::U32, count * 2, Content::Sequences(p.tokens, p.seq_len));
        /// `[tokens, value_heads]` f32, read, uniform(-2.0, 0.0)
        operand decay(Read => Dtype::F32, tokens * value_heads, Content::Uniform(-2.0, 0.0));
        /// `[tokens, value_heads]` f32, read, uniform(0.0, 1.0)
        operand beta(Read => Dtype::F32, tokens * value_heads, Content::Uniform(0.0, 1.0));
        /// `[tokens, 2, key_heads]` f32, read, uniform(0.05, 0.1)
        operand scale(Read => Dtype::F32, tokens * 2 * key_heads, Content::Uniform(0.05, 0.1));
        /// `[tokens, value_heads, 64]` x, read, normal(0.1)
        operand inverse(Read => self.x, tokens * value_heads * 64, Content::Normal(0.1));
        /// `[tokens, value_heads, 64]` x, read, normal(0.1)
        operand scores(Read => self.x, tokens * value_heads * 64, Content::Normal(0.1));
        /// `[tokens, value_heads, 128]` x, read
        operand d_o(Read => self.x, tokens * value_heads * 128);
        /// `[tokens, value_heads, 128]` x, write: gradient of beta * v
        operand dvb(Write => self.x, tokens * value_heads * 128);
        /// `[ceil(tokens / 64), value_heads, 128, 128]` x, part: of `states` of the forward pass
        operand dstates(WritePart => self.x, tokens.div_ceil(64) * value_heads * 128 * 128);
        scalar tokens(u32);
        /// sequences at most; those behind the last have no tokens
        scalar count(u32);
        /// tokens of a sequence at most
        scalar seq_len(u32);
        /// query and key heads
        scalar key_heads(u32);
        /// a multiple of them
        scalar value_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, key_heads = p.key_heads, value_heads = p.value_heads, count = p.count] {
        flops = (6 * 128 + 4 * 64) * 128 * tokens * value_heads;
    }
    /// Computes the gradients of the states, and of what is written to them.
    kernel DeltaRuleStateBwd = "delta_rule.state_bwd" { x: Dtype };
}

parameters! {
    /// Parameter block of `delta_rule.bwd`.
    pub struct delta_rule_bwd_params, DeltaRuleBwdArgs {
        /// `[tokens, 2 * key_heads + value_heads, 128]` x, read: queries of a row, then keys, then values
        operand qkv(Read => self.x, tokens * (2 * key_heads + value_heads) * 128);
        /// `[tokens, gate_columns]` x, read: `b` of value heads from column `b_column`, then `a`
        operand gates(Read => self.x, tokens * gate_columns);
        /// `[2, value_heads]` f32, read: `a_log`, then `dt_bias`
        operand rates(Read => Dtype::F32, 2 * value_heads);
        /// `[count, 2]` u32, read, sequences(tokens, seq_len): first place and length, longest first
        operand sequences(Read => Dtype::U32, count * 2, Content::Sequences(p.tokens, p.seq_len));
        /// `[tokens, value_heads]` f32, read, uniform(-2.0, 0.0)
        operand decay(Read => Dtype::F32, tokens * value_heads, Content::Uniform(-2.0, 0.0));
        /// `[tokens, value_heads]` f32, read, uniform(0.1, 1.0)
        operand beta(Read => Dtype::F32, tokens * value_heads, Content::Uniform(0.1, 1.0));
        /// `[tokens, 2, key_heads]` f32, read, uniform(0.05, 0.1)
        operand scale(Read => Dtype::F32, tokens * 2 * key_heads, Content::Uniform(0.05, 0.1));
        /// `[tokens, value_heads, 64]` x, read, normal(0.1)
        operand scores(Read => self.x, tokens * value_heads * 64, Content::Normal(0.1));
        /// `[tokens, value_heads, 128]` x, read
        operand v_new(Read => self.x, tokens * value_heads * 128);
        /// `[ceil(tokens / 64), value_heads, 128, 128]` x, read
        operand states(Read => self.x, tokens.div_ceil(64) * value_heads * 128 * 128);
        /// `[tokens, value_heads, 128]` x, read
        operand d_o(Read => self.x, tokens * value_heads * 128);
        /// `[tokens, value_heads, 128]` x, read: gradient of beta * v
        operand dvb(Read => self.x, tokens * value_heads * 128);
        /// `[ceil(tokens / 64), value_heads, 128, 128]` x, read
        operand dstates(Read => self.x, tokens.div_ceil(64) * value_heads * 128 * 128);
        /// `[tokens, 2 * key_heads + value_heads, 128]` x, write: laid out as `qkv`
        operand dqkv(Write => self.x, tokens * (2 * key_heads + value_heads) * 128);
        /// `[tokens, gate_columns]` x, update: gradients of `b` and `a`; the rest is untouched
        operand dgates(ReadWrite => self.x, tokens * gate_columns);
        /// `[chunks, 2, value_heads]` f32, write: of `a_log` and `dt_bias`, zeros behind the last chunk
        operand partial(Write => Dtype::F32, chunks * 2 * value_heads);
        scalar tokens(u32);
        /// sequences at most; those behind the last have no tokens
        scalar count(u32);
        /// tokens of a sequence at most
        scalar seq_len(u32);
        /// query and key heads
        scalar key_heads(u32);
        /// a multiple of them
        scalar value_heads(u32);
        /// elements of a row of `gates`
        scalar gate_columns(u32);
        scalar b_column(u32);
        /// of all sequences at most: tokens / 64 + count
        scalar chunks(u32);
    }
    |self, p| [tokens = p.tokens, key_heads = p.key_heads, value_heads = p.value_heads, gate_columns = p.gate_columns,
    count = p.count, chunks = p.chunks] {
        flops = (6 * 128 + 12 * 64) * 128 * tokens * value_heads;
    }
    /// Computes the gradients of queries, keys, values and gates, and sums those of the decay's parameters over each
    /// chunk.
    kernel DeltaRuleBwd = "delta_rule.bwd" { x: Dtype };
}

parameters! {
    /// Parameter block of `delta_rule.decode`.
    /// The row at a position has the bits of that row of `delta_rule.fwd`. A run that begins within a chunk ends
    /// there at the latest.
    pub struct delta_rule_decode_params, DeltaRuleDecodeArgs {
        /// `[rows, 2 * key_heads + value_heads, 128]` x, read: queries of a row, then keys, then values
        operand qkv(Read => self.x, rows * (2 * key_heads + value_heads) * 128);
        /// `[rows, gate_columns]` x, read: `b` of value heads from column `b_column`, then `a`
        operand gates(Read => self.x, rows * gate_columns);
        /// `[2, value_heads]` f32, read: `a_log`, then `dt_bias`
        operand rates(Read => Dtype::F32, 2 * value_heads);
        /// `[rows]` u32, read, runs(slots, seq_len): the row's sequence in the pool, or IDLE_SLOT
        operand slot(Read => Dtype::U32, rows, Content::Runs(p.slots, p.seq_len));
        /// `[rows]` u32, read, steps(slot, seq_len, 64): the row's, in its sequence
        operand position(Read => Dtype::U32, rows, Content::Steps("slot", p.seq_len, 64));
        /// `[slots, value_heads, 128, 128]` f32, update: before the chunk; none before the first
        operand states(ReadWrite => Dtype::F32, slots * value_heads * 128 * 128);
        /// `[slots, value_heads, 128, 128]` x, update: these in x, in the order of fragments
        operand rounded(ReadWrite => self.x, slots * value_heads * 128 * 128);
        /// `[slots, key_heads, 64, 128]` x, update: of the chunk so far, as all that follows
        operand keys(ReadWrite => self.x, slots * key_heads * 64 * 128);
        /// `[slots, key_heads, 64]` f32, update, uniform(0.05, 0.1): factors that normalize keys
        operand scale(ReadWrite => Dtype::F32, slots * key_heads * 64, Content::Uniform(0.05, 0.1));
        /// `[slots, value_heads, 64]` f32, update, uniform(-2.0, 0.0): log of all decays in the chunk
        operand decay(ReadWrite => Dtype::F32, slots * value_heads * 64, Content::Uniform(-2.0, 0.0));
        /// `[slots, value_heads, 64, 64]` f32, update, uniform(-0.1, 0.1): rows of (I + A)^-1
        operand inverse(ReadWrite => Dtype::F32, slots * value_heads * 64 * 64, Content::Uniform(-0.1, 0.1));
        /// `[slots, value_heads, 64, 128]` x, update: beta (v - what keys read of the state)
        operand change(ReadWrite => self.x, slots * value_heads * 64 * 128);
        /// `[rows, value_heads, 128]` x, write: zeros for an idle slot
        operand o(Write => self.x, rows * value_heads * 128);
        scalar rows(u32);
        /// sequences that the pool has room for
        scalar slots(u32);
        /// positions of each
        scalar seq_len(u32);
        /// query and key heads
        scalar key_heads(u32);
        /// a multiple of them
        scalar value_heads(u32);
        /// elements of a row of `gates`
        scalar gate_columns(u32);
        scalar b_column(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, key_heads = p.key_heads, value_heads = p.value_heads, gate_columns = p.gate_columns,
    slots = p.slots] {
        bytes = rows * value_heads * (128 * 128 * self.x.bytes() + 32 * (2 * 128 * self.x.bytes() + 4 * 64));
    }
    /// Computes rows from the states and the chunks of their slots, and moves the state of a slot whose chunk is
    /// full.
    kernel DeltaRuleDecode = "delta_rule.decode" { x: Dtype };
}

parameters! {
    /// Parameter block of `dequant`.
    pub struct dequant_params, DequantArgs {
        /// `[n]` w, read
        operand w(Read => self.w, n);
        /// `[n]` x, write
        operand x(Write => self.x, n);
        /// elements, whole blocks
        scalar n(u64);
    }
    |self, p| [n = p.n] {}
    /// Makes blocks dense.
    kernel Dequant = "dequant" { w: Block, x: Dtype };
}

parameters! {
    /// Parameter block of `embedding.fwd`.
    pub struct embedding_fwd_params, EmbeddingFwdArgs {
        /// `[tokens]` u32, read, ids(vocab): each below `vocab`
        operand ids(Read => Dtype::U32, tokens, Content::Ids(p.vocab));
        /// `[vocab, h]` w, read
        operand table(Read => self.w, vocab * h);
        /// `[tokens, h]` x, write
        operand y(Write => self.x, tokens * h);
        scalar tokens(u32);
        scalar vocab(u32);
    }
    |self, p| [tokens = p.tokens, vocab = p.vocab, h = self.h] {
        bytes = tokens * (4 + self.w.bytes(h) + h * self.x.bytes());
    }
    /// Gathers rows of an embedding table.
    kernel EmbeddingFwd = "embedding.fwd" { h: u32, w: Format, x: Dtype };
}

parameters! {
    /// Parameter block of `embedding.bwd`.
    /// Rows of tokens that do not occur stay as they are, and so does that of `padding`: `padding_idx` of
    /// torch.nn.Embedding.
    pub struct embedding_bwd_params, EmbeddingBwdArgs {
        /// `[tokens]` u32, read, sorted_ids(vocab): ascending
        operand sorted_ids(Read => Dtype::U32, tokens, Content::SortedIds(p.vocab));
        /// `[tokens]` u32, read, positions_of(sorted_ids): row of `dy` of each sorted id; ascending within an id
        operand sorted_positions(Read => Dtype::U32, tokens, Content::PositionsOf("sorted_ids"));
        /// `[tokens, h]` x, read
        operand dy(Read => self.x, tokens * h);
        /// `[vocab, h]` f32, update
        operand dtable(ReadWrite => Dtype::F32, vocab * h);
        scalar tokens(u32);
        scalar vocab(u32);
        /// id whose row gets no gradient; none: a number from `vocab` up
        scalar padding(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, h = self.h, vocab = p.vocab] {
        bytes = tokens * (8 + h * self.x.bytes()) + 2 * tokens.min(vocab) * h * 4;
    }
    /// Adds gradients into the rows they came from.
    kernel EmbeddingBwd = "embedding.bwd" { h: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `fake_quant`.
    pub struct fake_quant_params, FakeQuantArgs {
        /// `[n]` f32, read
        operand master(Read => Dtype::F32, n);
        /// `[n]` x, write
        operand x(Write => self.x, n);
        /// elements, whole blocks
        scalar n(u64);
    }
    |self, p| [n = p.n] {}
    /// Rounds a dense matrix to the values that it has in blocks.
    kernel FakeQuant = "fake_quant" { w: Block, x: Dtype };
}

parameters! {
    /// Parameter block of `fill`.
    pub struct fill_params, FillArgs {
        /// micro_scalars, read if first
        optional micro(Read if self.first => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// `[n]` f32, update if first, write if !first
        operand y(ReadWrite if self.first, Write if !self.first => Dtype::F32, n);
        /// elements
        scalar n(u64);
        scalar value(f32);
        internal reserved(u32);
    }
    |self, p| [n = p.n] {}
    /// Sets elements; with `first`, in the first micro-batch only.
    kernel Fill = "fill" { first: bool };
}

parameters! {
    /// Parameter block of `gated_norm.fwd`.
    pub struct gated_norm_fwd_params, GatedNormFwdArgs {
        /// `[tokens, heads, d]` x, read
        operand x(Read => self.x, tokens * heads * d);
        /// `[tokens, gate_columns]` x, read: gates of heads from column `column`
        operand gates(Read => self.x, tokens * gate_columns);
        /// `[d]` x, read
        operand gamma(Read => self.x, d);
        /// `[tokens, heads, d]` x, write
        operand y(Write => self.x, tokens * heads * d);
        scalar eps(f32);
        scalar tokens(u32);
        scalar heads(u32);
        /// elements of a row of `gates`
        scalar gate_columns(u32);
        scalar column(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, d = self.d, gate_columns = p.gate_columns] {}
    /// Normalizes each head, and multiplies by the weight and the gate's SiLU.
    kernel GatedNormFwd = "gated_norm.fwd" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `gated_norm.bwd`.
    pub struct gated_norm_bwd_params, GatedNormBwdArgs {
        /// `[tokens, heads, d]` x, read
        operand x(Read => self.x, tokens * heads * d);
        /// `[tokens, gate_columns]` x, read: gates of heads from column `column`
        operand gates(Read => self.x, tokens * gate_columns);
        /// `[d]` x, read
        operand gamma(Read => self.x, d);
        /// `[tokens, heads, d]` x, read
        operand dy(Read => self.x, tokens * heads * d);
        /// `[tokens, heads, d]` x, write
        operand dx(Write => self.x, tokens * heads * d);
        /// `[tokens, gate_columns]` x, part: gradients of the gates; the rest is untouched
        operand dgates(WritePart => self.x, tokens * gate_columns);
        /// `[ceil(tokens / rows), d]` f32, write
        operand dgamma_partial(Write => Dtype::F32, tokens.div_ceil(rows) * d);
        scalar eps(f32);
        scalar tokens(u32);
        scalar heads(u32);
        /// elements of a row of `gates`
        scalar gate_columns(u32);
        scalar column(u32);
        /// tokens that share one partial sum
        scalar rows(u32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, d = self.d, gate_columns = p.gate_columns, rows = p.rows] {}
    /// Computes the gradients of heads and gates, and sums that of gamma over `rows` tokens.
    kernel GatedNormBwd = "gated_norm.bwd" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `gated_norm.dgrad`.
    pub struct gated_norm_dgrad_params, GatedNormDgradArgs {
        /// `[tokens, heads, d]` x, read
        operand x(Read => self.x, tokens * heads * d);
        /// `[tokens, gate_columns]` x, read: gates of heads from column `column`
        operand gates(Read => self.x, tokens * gate_columns);
        /// `[d]` x, read
        operand gamma(Read => self.x, d);
        /// `[tokens, heads, d]` x, read
        operand dy(Read => self.x, tokens * heads * d);
        /// `[tokens, heads, d]` x, write
        operand dx(Write => self.x, tokens * heads * d);
        /// `[tokens, gate_columns]` x, part: gradients of the gates; the rest is untouched
        operand dgates(WritePart => self.x, tokens * gate_columns);
        scalar eps(f32);
        scalar tokens(u32);
        scalar heads(u32);
        /// elements of a row of `gates`
        scalar gate_columns(u32);
        scalar column(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, d = self.d, gate_columns = p.gate_columns] {}
    /// Computes the gradients of heads and gates where gamma does not train.
    kernel GatedNormDgrad = "gated_norm.dgrad" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `gemm.fwd`.
    #[repr(align(64))]
    pub struct gemm_fwd_params, GemmFwdArgs {
        /// `[m, k]` x, read
        operand x(Read => self.x, m * k);
        /// `[matrices() * n, k]` w, read
        operand w(Read => self.w, (self.matrices(p) * n) * k);
        /// `[n]` x.output(), read if bias
        optional bias(Read if self.bias => self.x.output(), n);
        /// `[m, n]` x.output(), read if residual
        optional residual(Read if self.residual => self.x.output(), m * n);
        /// `[m, n]` x.output(), write if !experts.is_set(), part if experts.is_set(): of listed tiles
        operand y(Write if !self.experts.is_set(), WritePart if self.experts.is_set() => self.x.output(), m * n);
        /// rows: tokens
        scalar m(u32);
        /// out features
        scalar n(u32);
        /// in features
        scalar k(u32);
        /// if experts.is_set(), experts of the list, and 65536 times those of the layer
        scalar experts_of(u32);
        /// `[list(), 4]` u32, read if experts.is_set(), expert_tiles(m, matrices(), 128)
        optional tiles(Read if self.experts.is_set() => Dtype::U32, self.list(p) * 4, Content::ExpertTiles(p.m,
        self.matrices(p), 128));
        /// `x`, `w`
        internal maps([tensor_map; 2]);
        /// `[m]` f32, read if x == i8, uniform(1e-3, 2e-2)
        optional x_scale(Read if self.x == Dtype::I8 => Dtype::F32, m, Content::Uniform(1e-3, 2e-2));
        /// `[matrices() * n]` f32, read if x == i8, uniform(1e-3, 2e-2)
        optional w_scale(Read if self.x == Dtype::I8 => Dtype::F32, self.matrices(p) * n, Content::Uniform(1e-3,
        2e-2));
        internal reserved_int8([u32; 12]);
    }
    |self, p| [m = p.m, k = p.k, n = p.n] {
        before x_scale unless self.x == Dtype::I8;
        flops = 2 * self.listed_rows(p) * n * k;
    }
    /// Multiplies inputs by weights.
    kernel GemmFwd = "gemm.fwd" { bias: bool, experts: Flag, residual: bool, w: Format, x: Format };
}

parameters! {
    /// Parameter block of `gemm.swiglu`.
    #[repr(align(64))]
    pub struct gemm_swiglu_params, GemmSwigluArgs {
        /// `[m, k]` x, read
        operand x(Read => self.x, m * k);
        /// `[matrices() * 2 * n, k]` w, read: the gate features, then the up features
        operand w(Read => self.w, (self.matrices(p) * 2 * n) * k);
        /// `[2 * n]` x.output(), read if bias
        optional bias(Read if self.bias => self.x.output(), 2 * n);
        /// `[m, n]` x.output(), write if !experts.is_set(), part if experts.is_set(): of listed tiles
        operand y(Write if !self.experts.is_set(), WritePart if self.experts.is_set() => self.x.output(), m * n);
        /// rows: tokens
        scalar m(u32);
        /// out features: half of those that are computed
        scalar n(u32);
        /// in features
        scalar k(u32);
        /// if experts.is_set(), experts of the list, and 65536 times those of the layer
        scalar experts_of(u32);
        /// `[list(), 4]` u32, read if experts.is_set(), expert_tiles(m, matrices(), 128)
        optional tiles(Read if self.experts.is_set() => Dtype::U32, self.list(p) * 4, Content::ExpertTiles(p.m,
        self.matrices(p), 128));
        internal reserved_behind([u32; 2]);
        /// `x`, `w`
        internal maps([tensor_map; 2]);
        /// `[m]` f32, read if x == i8, uniform(1e-3, 2e-2)
        optional x_scale(Read if self.x == Dtype::I8 => Dtype::F32, m, Content::Uniform(1e-3, 2e-2));
        /// `[matrices() * 2 * n]` f32, read if x == i8, uniform(1e-3, 2e-2)
        optional w_scale(Read if self.x == Dtype::I8 => Dtype::F32, self.matrices(p) * 2 * n, Content::Uniform(1e-3,
        2e-2));
        internal reserved_int8([u32; 12]);
    }
    |self, p| [m = p.m, k = p.k, n = p.n] {
        before x_scale unless self.x == Dtype::I8;
        flops = 2 * self.listed_rows(p) * 2 * n * k;
    }
    /// Multiplies by gate and up, and gates.
    kernel GemmSwiglu = "gemm.swiglu" { bias: bool, experts: Flag, gate: Gate, w: Format, x: Format };
}

parameters! {
    /// Parameter block of `gemm.dgrad`.
    #[repr(align(64))]
    pub struct gemm_dgrad_params, GemmDgradArgs {
        /// `[m, n]` x, read
        operand dy(Read => self.x, m * n);
        /// `[n, k]` w, read
        operand w(Read => self.w, n * k);
        /// `[m, k]` x, write
        operand dx(Write => self.x, m * k);
        /// `[workspace()]` f32, scratch if splits > 1: whole tiles, the sum of the splits so far
        optional workspace(Scratch if p.splits > 1 => Dtype::F32, self.workspace(p));
        /// `[semaphores()]` u32, update if splits > 1, zeros: per tile the split that may add next; 0 between
        /// launches
        optional semaphores(ReadWrite if p.splits > 1 => Dtype::U32, self.semaphores(p), Content::Zeros);
        /// rows: tokens
        scalar m(u32);
        /// out features
        scalar n(u32);
        /// in features
        scalar k(u32);
        /// split-K: CTAs per tile, which add one after the other; 0 or 1 for none
        scalar splits(u32);
        internal reserved([u32; 2]);
        /// `dy`, `w`
        internal maps([tensor_map; 2]);
    }
    |self, p| [m = p.m, n = p.n, k = p.k] {
        flops = 2 * m * n * k;
    }
    /// Computes the gradient of the inputs.
    kernel GemmDgrad = "gemm.dgrad" { w: Format, x: Dtype };
}

parameters! {
    /// Parameter block of `gemm.wgrad`.
    #[repr(align(64))]
    pub struct gemm_wgrad_params, GemmWgradArgs {
        /// `[m, n]` x, read
        operand dy(Read => self.x, m * n);
        /// `[m, k]` x, read
        operand x(Read => self.x, m * k);
        /// micro_scalars, read
        operand micro(Read => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// `[n, k]` f32, update
        operand dw(ReadWrite => Dtype::F32, n * k);
        /// `[semaphores()]` u32, update if splits > 1, zeros: per tile the split that may add next; 0 between
        /// launches
        optional semaphores(ReadWrite if p.splits > 1 => Dtype::U32, self.semaphores(p), Content::Zeros);
        /// rows: tokens
        scalar m(u32);
        /// out features
        scalar n(u32);
        /// in features
        scalar k(u32);
        /// 1: adds to `dw` whatever `micro` says (a later chunk of the same micro-batch)
        scalar accumulate(u32);
        /// split-K: CTAs per tile, which add one after the other; 0 or 1 for none
        scalar splits(u32);
        internal reserved(u32);
        /// `dy`, `x`
        internal maps([tensor_map; 2]);
    }
    |self, p| [m = p.m, n = p.n, k = p.k] {
        flops = 2 * m * n * k;
    }
    /// Computes the gradient of the weights.
    kernel GemmWgrad = "gemm.wgrad" { x: Dtype };
}

parameters! {
    /// Parameter block of `grad_distance.partial`.
    pub struct grad_distance_partial_params, GradDistancePartialArgs {
        /// `[n]` f32, read
        operand a(Read => Dtype::F32, n);
        /// `[n]` f32, read
        operand b(Read => Dtype::F32, n);
        /// `[3, ceil(n / group)]` f32, write: sums of a b, of a^2, of b^2
        operand partial(Write => Dtype::F32, 3 * n.div_ceil(group));
        /// elements
        scalar n(u64);
        /// elements that share one partial sum
        scalar group(u32);
        internal reserved(u32);
    }
    |self, p| [n = p.n, group = p.group] {}
    /// Dot products of groups of elements.
    kernel GradDistancePartial = "grad_distance.partial" {};
}

parameters! {
    /// Parameter block of `grad_norm.partial`.
    pub struct grad_norm_partial_params, GradNormPartialArgs {
        /// `[n]` f32, read
        operand grad(Read => Dtype::F32, n);
        /// `[ceil(n / group)]` f32, write
        operand partial(Write => Dtype::F32, n.div_ceil(group));
        /// elements
        scalar n(u64);
        /// elements that share one partial sum
        scalar group(u32);
        internal reserved(u32);
    }
    |self, p| [n = p.n, group = p.group] {}
    /// Sums squares of groups of elements.
    kernel GradNormPartial = "grad_norm.partial" {};
}

parameters! {
    /// Parameter block of `grad_norm.finish`.
    pub struct grad_norm_finish_params, GradNormFinishArgs {
        /// `[count]` f32, read, uniform(0.0, 1.0)
        operand partial(Read => Dtype::F32, count, Content::Uniform(0.0, 1.0));
        /// step_metrics, update: `grad_norm`, `clip_scale`, `skipped`
        operand metrics(ReadWrite => Dtype::F32, 6, Content::Scalars(step_metrics::CHECKED));
        scalar count(u32);
        /// largest norm allowed; 0 for none
        scalar clip(f32);
    }
    |self, p| [count = p.count] {}
    /// Computes norm and clip, and checks that the norm is finite.
    kernel GradNormFinish = "grad_norm.finish" {};
}

parameters! {
    /// Parameter block of `head.distill`.
    pub struct head_distill_params, HeadDistillArgs {
        /// `[tokens, vocab]` x, read: logits
        operand teacher(Read => self.x, tokens * vocab);
        /// `[tokens, vocab]` x, update: logits, replaced by their gradient
        operand student(ReadWrite => self.x, tokens * vocab);
        /// `[tokens]` u32, read, targets(vocab)
        operand targets(Read => Dtype::U32, tokens, Content::Targets(p.vocab));
        /// micro_scalars, read
        operand micro(Read => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// `[tokens]` f32, write: the divergence at `temperature`
        operand kd(Write => Dtype::F32, tokens);
        /// `[tokens]` f32, write: cross entropy at temperature 1
        operand ce(Write => Dtype::F32, tokens);
        scalar tokens(u32);
        scalar vocab(u32);
        /// share of the divergence, 0 to 1
        scalar alpha(f32);
        scalar temperature(f32);
    }
    |self, p| [tokens = p.tokens, vocab = p.vocab] {}
    /// Computes losses of a chunk, and the gradient of its student logits in place. The divergence is
    /// Kullback-Leibler's, of the student from the teacher or in reverse.
    kernel HeadDistill = "head.distill" { reverse: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `head.jsd`.
    pub struct head_jsd_params, HeadJsdArgs {
        /// `[tokens, vocab]` x, read: logits
        operand teacher(Read => self.x, tokens * vocab);
        /// `[tokens, vocab]` x, update: logits, replaced by their gradient
        operand student(ReadWrite => self.x, tokens * vocab);
        /// `[tokens]` u32, read, targets(vocab)
        operand targets(Read => Dtype::U32, tokens, Content::Targets(p.vocab));
        /// micro_scalars, read
        operand micro(Read => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// `[tokens]` f32, write: the divergence at `temperature`
        operand kd(Write => Dtype::F32, tokens);
        /// `[tokens]` f32, write: cross entropy at temperature 1
        operand ce(Write => Dtype::F32, tokens);
        scalar tokens(u32);
        scalar vocab(u32);
        /// share of the divergence, 0 to 1
        scalar alpha(f32);
        scalar temperature(f32);
        /// weight of the teacher in the mixture, between 0 and 1
        scalar beta(f32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, vocab = p.vocab] {}
    /// Computes losses like `head.distill`, by the divergences of teacher and student from their mixture.
    kernel HeadJsd = "head.jsd" { x: Dtype };
}

parameters! {
    /// Parameter block of `head.ce`.
    pub struct head_ce_params, HeadCeArgs {
        /// `[tokens, vocab]` x, update: replaced by their gradient
        operand logits(ReadWrite => self.x, tokens * vocab);
        /// `[tokens]` u32, read, targets(vocab)
        operand targets(Read => Dtype::U32, tokens, Content::Targets(p.vocab));
        /// micro_scalars, read
        operand micro(Read => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// `[tokens]` f32, write: cross entropy
        operand ce(Write => Dtype::F32, tokens);
        scalar tokens(u32);
        scalar vocab(u32);
    }
    |self, p| [tokens = p.tokens, vocab = p.vocab] {}
    /// Computes cross entropies of a chunk, and the gradient of its logits in place.
    kernel HeadCe = "head.ce" { x: Dtype };
}

parameters! {
    /// Parameter block of `head.nll`.
    pub struct head_nll_params, HeadNllArgs {
        /// `[tokens, vocab]` x, read
        operand logits(Read => self.x, tokens * vocab);
        /// `[tokens]` u32, read, targets(vocab)
        operand targets(Read => Dtype::U32, tokens, Content::Targets(p.vocab));
        /// `[tokens]` f32, write
        operand nll(Write => Dtype::F32, tokens);
        scalar tokens(u32);
        scalar vocab(u32);
    }
    |self, p| [tokens = p.tokens, vocab = p.vocab] {}
    /// Computes the negative log likelihood of a chunk.
    kernel HeadNll = "head.nll" { x: Dtype };
}

parameters! {
    /// Parameter block of `head.compare`.
    pub struct head_compare_params, HeadCompareArgs {
        /// `[tokens, vocab]` x, read: logits that others are compared with
        operand reference(Read => self.x, tokens * vocab);
        /// `[tokens, vocab]` x, read
        operand logits(Read => self.x, tokens * vocab);
        /// `[tokens]` u32, read, targets(vocab)
        operand targets(Read => Dtype::U32, tokens, Content::Targets(p.vocab));
        /// `[tokens]` f32, write: KL(reference || logits)
        operand kl(Write => Dtype::F32, tokens);
        /// `[tokens]` f32, write: 1 where both have their largest logit at the same token
        operand agrees(Write => Dtype::F32, tokens);
        /// `[tokens]` f32, write
        operand reference_nll(Write => Dtype::F32, tokens);
        /// `[tokens]` f32, write
        operand nll(Write => Dtype::F32, tokens);
        scalar tokens(u32);
        scalar vocab(u32);
    }
    |self, p| [tokens = p.tokens, vocab = p.vocab] {}
    /// Compares two models' predictions of a chunk.
    kernel HeadCompare = "head.compare" { x: Dtype };
}

parameters! {
    /// Parameter block of `head.metrics`.
    pub struct head_metrics_params, HeadMetricsArgs {
        /// `[tokens]` f32, read if kd
        optional kd(Read if self.kd => Dtype::F32, tokens);
        /// `[tokens]` f32, read
        operand ce(Read => Dtype::F32, tokens);
        /// micro_scalars, read
        operand micro(Read => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// step_metrics, update: `kd_loss` and `ce_loss`, set in the first micro-batch, added to later
        operand metrics(ReadWrite => Dtype::F32, 6, Content::Scalars(step_metrics::CHECKED));
        scalar tokens(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens] {}
    /// Adds mean losses of a micro-batch up over the step; that of the teacher with `kd`.
    kernel HeadMetrics = "head.metrics" { kd: bool };
}

parameters! {
    /// Parameter block of `head.topk`.
    pub struct head_topk_params, HeadTopkArgs {
        /// `[tokens, keep]` u32, read, distinct(keep, vocab): the known tokens, then NO_TOKEN
        operand ids(Read => Dtype::U32, tokens * keep, Content::Distinct(p.keep, p.vocab));
        /// `[tokens, keep + 1]` f32, read, log_probs(keep + 1): the teacher's at `temperature`, nats; the last entry
        /// is for the remaining tokens combined
        operand log_probs(Read => Dtype::F32, tokens * (keep + 1), Content::LogProbs(p.keep + 1));
        /// `[tokens, vocab]` x, update: logits, replaced by their gradient
        operand student(ReadWrite => self.x, tokens * vocab);
        /// `[tokens]` u32, read, targets(vocab)
        operand targets(Read => Dtype::U32, tokens, Content::Targets(p.vocab));
        /// micro_scalars, read
        operand micro(Read => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        /// `[tokens]` f32, write: the divergence at `temperature`
        operand kd(Write => Dtype::F32, tokens);
        /// `[tokens]` f32, write: cross entropy at temperature 1
        operand ce(Write => Dtype::F32, tokens);
        scalar tokens(u32);
        scalar vocab(u32);
        /// below `vocab`, at most MOST_KEPT
        scalar keep(u32);
        /// share of the divergence, 0 to 1
        scalar alpha(f32);
        scalar temperature(f32);
        /// weight of the teacher in the mixture; 0: the KL of the student from the teacher, 1: in reverse
        scalar beta(f32);
    }
    |self, p| [tokens = p.tokens, keep = p.keep, vocab = p.vocab] {}
    /// Computes losses like `head.distill` and `head.jsd`, by the divergence over some tokens whose teacher
    /// probabilities are known, and the combined rest.
    kernel HeadTopk = "head.topk" { x: Dtype };
}

parameters! {
    /// Parameter block of `int8.quantize`.
    pub struct int8_quantize_params, Int8QuantizeArgs {
        /// `[rows, k]` x, read, rows(k)
        operand x(Read => self.x, rows * k, Content::Rows(self.k));
        /// `[rows, k]` i8, write
        operand q(Write => Dtype::I8, rows * k);
        /// `[rows]` f32, write
        operand scale(Write => Dtype::F32, rows);
        scalar rows(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, k = self.k] {}
    /// Quantizes rows to rotated int8.
    kernel Int8Quantize = "int8.quantize" { k: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `int8.columns`.
    pub struct int8_columns_params, Int8ColumnsArgs {
        /// `[n, columns]` x, read, columns(columns)
        operand x(Read => self.x, n * columns, Content::Columns(p.columns));
        /// `[columns, n]` i8, write
        operand q(Write => Dtype::I8, columns * n);
        /// `[columns]` f32, write
        operand scale(Write => Dtype::F32, columns);
        /// even
        scalar columns(u32);
        internal reserved(u32);
    }
    |self, p| [n = self.n, columns = p.columns] {}
    /// Quantizes columns to rotated int8, as rows.
    kernel Int8Columns = "int8.columns" { n: u32, x: Dtype };
}

parameters! {
    /// An adapted part of a stack: one of the projections that one matrix multiplication computes.
    pub struct lora_part {
        scale: f32;
        /// first column of `y`
        start: u32;
        /// columns
        width: u32;
        /// first row of `b`: the width of the parts before it
        row: u32;
    }
}

parameters! {
    /// Parameter block of `lora.fwd_a`.
    pub struct lora_fwd_a_params, LoraFwdAArgs {
        /// `[m, k]` x, read
        operand x(Read => self.x, m * k);
        /// `[parts * rank, k]` x, read
        operand a(Read => self.x, (parts * rank) * k);
        /// `[m, parts * rank]` x, write
        operand t(Write => self.x, m * (parts * rank));
        scalar m(u32);
        scalar k(u32);
        /// of each part
        scalar rank(u32);
        scalar parts(u32);
        scalar part([lora_part; 4]);
    }
    |self, p| [m = p.m, k = p.k, parts = p.parts, rank = p.rank] {
        flops = 2 * m * k * parts * rank;
    }
    /// Multiplies inputs by `a`, to ranks.
    kernel LoraFwdA = "lora.fwd_a" { x: Dtype };
}

parameters! {
    /// Parameter block of `lora.fwd_b`.
    pub struct lora_fwd_b_params, LoraFwdBArgs {
        /// `[m, parts * rank]` x, read
        operand t(Read => self.x, m * (parts * rank));
        /// `[width(), rank]` x, read
        operand b(Read => self.x, self.width(p) * rank);
        /// `[m, n]` x, update: columns of parts, the rest is untouched
        operand y(ReadWrite => self.x, m * n);
        scalar m(u32);
        scalar n(u32);
        /// of each part
        scalar rank(u32);
        scalar parts(u32);
        scalar part([lora_part; 4]);
    }
    |self, p| [m = p.m, parts = p.parts, rank = p.rank, n = p.n] {
        flops = 2 * m * self.width(p) * rank;
        bytes = (m * parts * rank + self.width(p) * rank + 2 * m * self.width(p)) * self.x.bytes();
    }
    /// Multiplies ranks by `b`, and adds to the outputs.
    kernel LoraFwdB = "lora.fwd_b" { x: Dtype };
}

parameters! {
    /// Parameter block of `lora.dgrad_b`.
    pub struct lora_dgrad_b_params, LoraDgradBArgs {
        /// `[m, n]` x, read: columns of parts
        operand dy(Read => self.x, m * n);
        /// `[width(), rank]` x, read
        operand b(Read => self.x, self.width(p) * rank);
        /// `[m, parts * rank]` x, write
        operand dt(Write => self.x, m * (parts * rank));
        scalar m(u32);
        scalar n(u32);
        /// of each part
        scalar rank(u32);
        scalar parts(u32);
        scalar part([lora_part; 4]);
    }
    |self, p| [m = p.m, n = p.n, rank = p.rank, parts = p.parts] {
        flops = 2 * m * self.width(p) * rank;
        bytes = (m * self.width(p) + self.width(p) * rank + m * parts * rank) * self.x.bytes();
    }
    /// Computes the gradient of the ranks.
    kernel LoraDgradB = "lora.dgrad_b" { x: Dtype };
}

parameters! {
    /// Parameter block of `lora.dgrad_a`.
    pub struct lora_dgrad_a_params, LoraDgradAArgs {
        /// `[m, rank]` x, read
        operand dt(Read => self.x, m * rank);
        /// `[rank, k]` x, read
        operand a(Read => self.x, rank * k);
        /// `[m, k]` x, update
        operand dx(ReadWrite => self.x, m * k);
        scalar m(u32);
        scalar k(u32);
        /// of all parts together
        scalar rank(u32);
        internal reserved(u32);
    }
    |self, p| [m = p.m, rank = p.rank, k = p.k] {
        flops = 2 * m * k * rank;
    }
    /// Computes the gradient of the inputs, and adds it to them.
    kernel LoraDgradA = "lora.dgrad_a" { x: Dtype };
}

parameters! {
    /// Parameter block of `lora.wgrad`.
    pub struct lora_wgrad_params, LoraWgradArgs {
        /// `[m, n]` x, read: columns of parts
        operand dy(Read => self.x, m * n);
        /// `[m, parts * columns]` x, read
        operand x(Read => self.x, m * (parts * columns));
        /// `[width(), columns]` f32, update if splits == 1
        optional dw(ReadWrite if p.splits == 1 => Dtype::F32, self.width(p) * columns);
        /// `[splits, width(), columns]` f32, write if splits != 1
        optional partial(Write if p.splits != 1 => Dtype::F32, splits * self.width(p) * columns);
        /// micro_scalars, read if splits == 1
        optional micro(Read if p.splits == 1 => Dtype::U32, 2, Content::Scalars(micro_scalars::CHECKED));
        scalar m(u32);
        scalar n(u32);
        /// of each part's gradient
        scalar columns(u32);
        /// ranges of the m rows, whole slices of 32, each summed apart
        scalar splits(u32);
        scalar parts(u32);
        internal reserved(u32);
        scalar part([lora_part; 4]);
    }
    |self, p| [m = p.m, n = p.n, parts = p.parts, columns = p.columns, splits = p.splits] {
        flops = 2 * m * self.width(p) * columns;
        bytes = (m * self.width(p) + m * parts * columns) * self.x.bytes() + splits * self.width(p) * columns * 4;
    }
    /// Computes the gradients of either matrix.
    kernel LoraWgrad = "lora.wgrad" { x: Dtype };
}

parameters! {
    /// Parameter block of `moe.route`.
    pub struct moe_route_params, MoeRouteArgs {
        /// `[tokens, columns]` x, read, logits(columns): of each expert, then of the shared one
        operand logits(Read => self.x, tokens * columns, Content::Logits(p.columns));
        /// `[tokens, choices()]` u32, write: by decreasing logit, of equals the lower; then the shared one
        operand choices(Write => Dtype::U32, tokens * self.choices(p));
        /// `[tokens, choices()]` f32, write: factor of what each choice computes
        operand weights(Write => Dtype::F32, tokens * self.choices(p));
        /// `[tokens, choices()]` u32, write: earlier choices of the same expert in the group of tokens
        operand ranks(Write => Dtype::U32, tokens * self.choices(p));
        /// `[groups(), matrices()]` u32, write: choices of each expert in a group of ROUTE_GROUP tokens
        operand counts(Write => Dtype::U32, self.groups(p) * self.matrices(p));
        scalar tokens(u32);
        /// of a row of logits, at least one for each expert
        scalar columns(u32);
    }
    |self, p| [tokens = p.tokens, columns = p.columns, experts = self.experts, chosen = self.chosen] {
        flops = tokens * experts * (chosen + 4);
    }
    /// Chooses the experts of each token.
    kernel MoeRoute = "moe.route" { chosen: u32, experts: u32, normalize: bool, shared: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `moe.sort`.
    pub struct moe_sort_params, MoeSortArgs {
        /// `[tokens, choices()]` u32, read, ids(experts)
        operand choices(Read => Dtype::U32, tokens * self.choices(p), Content::Ids(self.experts));
        /// `[tokens, choices()]` u32, read, ids(64)
        operand ranks(Read => Dtype::U32, tokens * self.choices(p), Content::Ids(64));
        /// `[groups(), matrices()]` u32, read, ids(65)
        operand counts(Read => Dtype::U32, self.groups(p) * self.matrices(p), Content::Ids(65));
        /// `[tokens, choices()]` u32, write: row of each choice, where rows lie by expert
        operand places(Write => Dtype::U32, tokens * self.choices(p));
        /// `[lists(), list, 4]` u32, write: lists of tiles, of `each` neighboring experts
        operand tiles(Write => Dtype::U32, self.lists(p) * list * 4);
        scalar tokens(u32);
        /// entries of a list: the number of tiles, and tiles
        scalar list(u32);
        /// experts of a list; the last one may have fewer
        scalar each(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, list = p.list] {
        flops = 0;
    }
    /// Sorts choices by expert, and lists tiles of experts' rows.
    kernel MoeSort = "moe.sort" { chosen: u32, experts: u32, shared: bool };
}

parameters! {
    /// Parameter block of `moe.permute`.
    pub struct moe_permute_params, MoePermuteArgs {
        /// `[tokens, h]` x, read
        operand x(Read => self.x, tokens * h);
        /// `[tokens]` f32, read if x == i8, uniform(1e-3, 2e-2)
        optional x_scale(Read if self.x == Dtype::I8 => Dtype::F32, tokens, Content::Uniform(1e-3, 2e-2));
        /// `[tokens, choices]` u32, read, permutation
        operand places(Read => Dtype::U32, tokens * choices, Content::Permutation);
        /// `[tokens * choices, h]` x, write
        operand y(Write => self.x, (tokens * choices) * h);
        /// `[tokens * choices]` f32, write if x == i8
        optional y_scale(Write if self.x == Dtype::I8 => Dtype::F32, tokens * choices);
        scalar tokens(u32);
        /// of a token
        scalar choices(u32);
        scalar h(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, h = p.h, choices = p.choices] {
        bytes = tokens * h + tokens * choices * (h + 4);
    }
    /// Copies each token's row to the places of its choices.
    kernel MoePermute = "moe.permute" { x: Format };
}

parameters! {
    /// Parameter block of `moe.combine`.
    pub struct moe_combine_params, MoeCombineArgs {
        /// `[tokens * choices, h]` x, read: rows by expert
        operand y(Read => self.x, (tokens * choices) * h);
        /// `[tokens, choices]` u32, read, permutation
        operand places(Read => Dtype::U32, tokens * choices, Content::Permutation);
        /// `[tokens, choices]` f32, read, uniform(0, 1)
        operand weights(Read => Dtype::F32, tokens * choices, Content::Uniform(0.0, 1.0));
        /// `[tokens, h]` x, read
        operand residual(Read => self.x, tokens * h);
        /// `[tokens, h]` x, write
        operand out(Write => self.x, tokens * h);
        scalar tokens(u32);
        scalar h(u32);
    }
    |self, p| [tokens = p.tokens, choices = self.choices, h = p.h] {
        flops = tokens * h * (2 * choices + 1);
    }
    /// Adds what a token's choices computed, times their weights, and the residual.
    kernel MoeCombine = "moe.combine" { choices: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `output_gate.fwd`.
    pub struct output_gate_fwd_params, OutputGateFwdArgs {
        /// `[tokens, heads, d]` x, read
        operand o(Read => self.x, tokens * heads * d);
        /// `[tokens, row_heads, d]` x, read: query and gate of each head first
        operand packed(Read => self.x, tokens * row_heads * d);
        /// `[tokens, heads, d]` x, write
        operand y(Write => self.x, tokens * heads * d);
        scalar tokens(u32);
        scalar heads(u32);
        /// heads of a row of `packed`
        scalar row_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, d = self.d, row_heads = p.row_heads] {}
    /// Multiplies the output of each attention head by its gate's sigmoid.
    kernel OutputGateFwd = "output_gate.fwd" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `output_gate.bwd`.
    pub struct output_gate_bwd_params, OutputGateBwdArgs {
        /// `[tokens, heads, d]` x, read
        operand o(Read => self.x, tokens * heads * d);
        /// `[tokens, row_heads, d]` x, read: query and gate of each head first
        operand packed(Read => self.x, tokens * row_heads * d);
        /// `[tokens, heads, d]` x, read
        operand dy(Read => self.x, tokens * heads * d);
        /// `[tokens, heads, d]` x, write
        operand d_o(Write => self.x, tokens * heads * d);
        /// `[tokens, row_heads, d]` x, part: gradients of the gates; the rest is untouched
        operand dpacked(WritePart => self.x, tokens * row_heads * d);
        scalar tokens(u32);
        scalar heads(u32);
        /// heads of a row of `packed`
        scalar row_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, heads = p.heads, d = self.d, row_heads = p.row_heads] {}
    /// Computes the gradients of outputs and gates.
    kernel OutputGateBwd = "output_gate.bwd" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `post_norm.fwd`.
    pub struct post_norm_fwd_params, PostNormFwdArgs {
        /// `[tokens, h]` x, read: the residual stream
        operand x(Read => self.x, tokens * h);
        /// `[tokens, h]` x, read
        operand branch(Read => self.x, tokens * h);
        /// `[h]` x, read: of the branch's norm
        operand gamma(Read => self.x, h);
        /// `[h]` x, read if next: of the sum's norm
        optional next_gamma(Read if self.next => self.x, h);
        /// `[tokens]` f32, write if out.is_dense(): of `branch`
        optional rstd(Write if self.out.is_dense() => Dtype::F32, tokens);
        /// `[tokens, h]` x, write
        operand sum(Write => self.x, tokens * h);
        /// `[tokens]` f32, write if next && out.is_dense(): of `sum`
        optional next_rstd(Write if self.next && self.out.is_dense() => Dtype::F32, tokens);
        /// `[tokens, h]` x, write if next && out.is_dense(): the sum, normalized
        optional y(Write if self.next && self.out.is_dense() => self.x, tokens * h);
        scalar eps(f32);
        scalar tokens(u32);
        /// `[tokens, h]` i8, write if out.is_int8(): of `y`
        optional q(Write if self.out.is_int8() => Dtype::I8, tokens * h);
        /// `[tokens]` f32, write if out.is_int8()
        optional scale(Write if self.out.is_int8() => Dtype::F32, tokens);
    }
    |self, p| [tokens = p.tokens, h = self.h] {
        before q unless self.out.is_int8();
    }
    /// Adds normalized rows of a branch to the residual stream; normalizes the sum if `next`.
    kernel PostNormFwd = "post_norm.fwd" { gamma: Gamma, h: u32, next: bool, out: Out, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.fwd`.
    pub struct qk_norm_fwd_params, QkNormFwdArgs {
        /// `[tokens, row_heads, d]` x, update: query and key heads, in place; the rest is untouched
        operand x(ReadWrite => self.x, tokens * row_heads * d);
        /// `[tokens, query_heads + key_heads, d]` x, write if keep: what they were
        optional raw(Write if self.keep => self.x, tokens * (query_heads + key_heads) * d);
        /// `[2, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, 2 * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar query_heads(u32);
        /// behind the query heads of a row
        scalar key_heads(u32);
        /// heads of a row, values' included
        scalar row_heads(u32);
    }
    |self, p| [tokens = p.tokens, row_heads = p.row_heads, d = self.d, query_heads = p.query_heads, key_heads =
    p.key_heads, seq_len = p.seq_len] {}
    /// Normalizes and rotates query and key heads, after copying them if `keep`.
    kernel QkNormFwd = "qk_norm.fwd" { d: u32, gamma: Gamma, keep: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.bwd`.
    pub struct qk_norm_bwd_params, QkNormBwdArgs {
        /// `[tokens, row_heads, d]` x, update: gradient of the rotated heads, replaced by that of `raw`
        operand dx(ReadWrite => self.x, tokens * row_heads * d);
        /// `[tokens, query_heads + key_heads, d]` x, read: what the forward pass normalized
        operand raw(Read => self.x, tokens * (query_heads + key_heads) * d);
        /// `[2, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, 2 * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[ceil(tokens / rows), 2, d]` f32, write
        operand dgamma_partial(Write => Dtype::F32, tokens.div_ceil(rows) * 2 * d);
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar query_heads(u32);
        /// behind the query heads of a row
        scalar key_heads(u32);
        /// heads of a row, values' included
        scalar row_heads(u32);
        /// tokens that share one partial sum
        scalar rows(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, row_heads = p.row_heads, d = self.d, query_heads = p.query_heads, key_heads =
    p.key_heads, seq_len = p.seq_len, rows = p.rows] {}
    /// Computes the gradient of the heads as they were, and of both gammas.
    kernel QkNormBwd = "qk_norm.bwd" { d: u32, gamma: Gamma, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.dgrad`.
    pub struct qk_norm_dgrad_params, QkNormDgradArgs {
        /// `[tokens, row_heads, d]` x, update: gradient of the rotated heads, replaced by that of `raw`
        operand dx(ReadWrite => self.x, tokens * row_heads * d);
        /// `[tokens, query_heads + key_heads, d]` x, read: what the forward pass normalized
        operand raw(Read => self.x, tokens * (query_heads + key_heads) * d);
        /// `[2, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, 2 * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar query_heads(u32);
        /// behind the query heads of a row
        scalar key_heads(u32);
        /// heads of a row, values' included
        scalar row_heads(u32);
    }
    |self, p| [tokens = p.tokens, row_heads = p.row_heads, d = self.d, query_heads = p.query_heads, key_heads =
    p.key_heads, seq_len = p.seq_len] {}
    /// Computes the gradient of the heads where the gammas do not train.
    kernel QkNormDgrad = "qk_norm.dgrad" { d: u32, gamma: Gamma, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.gated_fwd`.
    pub struct qk_norm_gated_fwd_params, QkNormGatedFwdArgs {
        /// `[tokens, 2 * query_heads + 2 * key_heads, d]` x, read: query and gate a head, keys, values
        operand packed(Read => self.x, tokens * (2 * query_heads + 2 * key_heads) * d);
        /// `[2, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, 2 * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, rotary / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (rotary / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, rotary / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (rotary / 2), Content::Uniform(-1.0, 1.0));
        /// `[tokens, query_heads + 2 * key_heads, d]` x, write
        operand qkv(Write => self.x, tokens * (query_heads + 2 * key_heads) * d);
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar query_heads(u32);
        /// and as many value heads
        scalar key_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, query_heads = p.query_heads, key_heads = p.key_heads, d = self.d, seq_len =
    p.seq_len, rotary = self.rotary] {}
    /// Takes query, key and value heads out of rows in which a gate follows each query; normalizes queries and keys,
    /// and rotates their first `rotary` elements.
    kernel QkNormGatedFwd = "qk_norm.gated_fwd" { d: u32, gamma: Gamma, rotary: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.gated_bwd`.
    pub struct qk_norm_gated_bwd_params, QkNormGatedBwdArgs {
        /// `[tokens, 2 * query_heads + 2 * key_heads, d]` x, read: what the forward pass took
        operand packed(Read => self.x, tokens * (2 * query_heads + 2 * key_heads) * d);
        /// `[2, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, 2 * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, rotary / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (rotary / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, rotary / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (rotary / 2), Content::Uniform(-1.0, 1.0));
        /// `[tokens, query_heads + 2 * key_heads, d]` x, read
        operand dqkv(Read => self.x, tokens * (query_heads + 2 * key_heads) * d);
        /// `[tokens, 2 * query_heads + 2 * key_heads, d]` x, update: gates are untouched
        operand dpacked(ReadWrite => self.x, tokens * (2 * query_heads + 2 * key_heads) * d);
        /// `[ceil(tokens / rows), 2, d]` f32, write
        operand dgamma_partial(Write => Dtype::F32, tokens.div_ceil(rows) * 2 * d);
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar query_heads(u32);
        /// and as many value heads
        scalar key_heads(u32);
        /// tokens that share one partial sum
        scalar rows(u32);
    }
    |self, p| [tokens = p.tokens, query_heads = p.query_heads, key_heads = p.key_heads, d = self.d, seq_len =
    p.seq_len, rotary = self.rotary, rows = p.rows] {}
    /// Computes the gradient of queries, keys and values as they were, and sums that of both gammas over `rows`
    /// tokens.
    kernel QkNormGatedBwd = "qk_norm.gated_bwd" { d: u32, gamma: Gamma, rotary: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.gated_dgrad`.
    pub struct qk_norm_gated_dgrad_params, QkNormGatedDgradArgs {
        /// `[tokens, 2 * query_heads + 2 * key_heads, d]` x, read: what the forward pass took
        operand packed(Read => self.x, tokens * (2 * query_heads + 2 * key_heads) * d);
        /// `[2, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, 2 * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, rotary / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (rotary / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, rotary / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (rotary / 2), Content::Uniform(-1.0, 1.0));
        /// `[tokens, query_heads + 2 * key_heads, d]` x, read
        operand dqkv(Read => self.x, tokens * (query_heads + 2 * key_heads) * d);
        /// `[tokens, 2 * query_heads + 2 * key_heads, d]` x, update: gates are untouched
        operand dpacked(ReadWrite => self.x, tokens * (2 * query_heads + 2 * key_heads) * d);
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        scalar query_heads(u32);
        /// and as many value heads
        scalar key_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, query_heads = p.query_heads, key_heads = p.key_heads, d = self.d, seq_len =
    p.seq_len, rotary = self.rotary] {}
    /// Computes the gradient of queries, keys and values as they were, where the gammas do not train.
    kernel QkNormGatedDgrad = "qk_norm.gated_dgrad" { d: u32, gamma: Gamma, rotary: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.row_fwd`.
    pub struct qk_norm_row_fwd_params, QkNormRowFwdArgs {
        /// `[tokens, row_heads, d]` x, update: query and key heads, in place; the rest is untouched
        operand x(ReadWrite => self.x, tokens * row_heads * d);
        /// `[tokens, heads + key_heads, d]` x, write if keep: what they were
        optional raw(Write if self.keep => self.x, tokens * (heads + key_heads) * d);
        /// `[heads + key_heads, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, (heads + key_heads) * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        /// behind the query heads of a row, and as many at most
        scalar key_heads(u32);
        /// heads of a row, values' included
        scalar row_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, row_heads = p.row_heads, d = self.d, heads = self.heads, key_heads = p.key_heads,
    seq_len = p.seq_len] {}
    /// Normalizes a token's queries and its keys, each over all heads, and rotates them, after copying them if
    /// `keep`.
    kernel QkNormRowFwd = "qk_norm.row_fwd" { d: u32, gamma: Gamma, heads: u32, keep: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.row_bwd`.
    pub struct qk_norm_row_bwd_params, QkNormRowBwdArgs {
        /// `[tokens, row_heads, d]` x, update: gradient of rotated heads, replaced by `raw`'s
        operand dx(ReadWrite => self.x, tokens * row_heads * d);
        /// `[tokens, heads + key_heads, d]` x, read: what the forward pass normalized
        operand raw(Read => self.x, tokens * (heads + key_heads) * d);
        /// `[heads + key_heads, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, (heads + key_heads) * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[ceil(tokens / rows), heads + key_heads, d]` f32, write
        operand dgamma_partial(Write => Dtype::F32, tokens.div_ceil(rows) * (heads + key_heads) * d);
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        /// behind the query heads of a row, and as many at most
        scalar key_heads(u32);
        /// heads of a row, values' included
        scalar row_heads(u32);
        /// tokens that share one partial sum
        scalar rows(u32);
    }
    |self, p| [tokens = p.tokens, row_heads = p.row_heads, d = self.d, heads = self.heads, key_heads = p.key_heads,
    seq_len = p.seq_len, rows = p.rows] {}
    /// Computes the gradient of the queries and keys as they were, and of both gammas.
    kernel QkNormRowBwd = "qk_norm.row_bwd" { d: u32, gamma: Gamma, heads: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `qk_norm.row_dgrad`.
    pub struct qk_norm_row_dgrad_params, QkNormRowDgradArgs {
        /// `[tokens, row_heads, d]` x, update: gradient of the rotated heads, replaced by that of `raw`
        operand dx(ReadWrite => self.x, tokens * row_heads * d);
        /// `[tokens, heads + key_heads, d]` x, read: what the forward pass normalized
        operand raw(Read => self.x, tokens * (heads + key_heads) * d);
        /// `[heads + key_heads, d]` x, read: of queries, of keys
        operand gamma(Read => self.x, (heads + key_heads) * d);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        scalar eps(f32);
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        /// behind the query heads of a row, and as many at most
        scalar key_heads(u32);
        /// heads of a row, values' included
        scalar row_heads(u32);
        internal reserved(u32);
    }
    |self, p| [tokens = p.tokens, row_heads = p.row_heads, d = self.d, heads = self.heads, key_heads = p.key_heads,
    seq_len = p.seq_len] {}
    /// Computes the gradient of the queries and keys where the gammas do not train.
    kernel QkNormRowDgrad = "qk_norm.row_dgrad" { d: u32, gamma: Gamma, heads: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `rmsnorm.fwd`.
    pub struct rmsnorm_fwd_params, RmsnormFwdArgs {
        /// `[tokens, h]` x, read
        operand x(Read => self.x, tokens * h);
        /// `[tokens, h]` x, read if residual: the branch
        optional delta(Read if self.residual => self.x, tokens * h);
        /// `[tokens, h]` x, write if residual: x + delta
        optional sum(Write if self.residual => self.x, tokens * h);
        /// `[h]` x, read
        operand gamma(Read => self.x, h);
        /// `[tokens, h]` x, write if out.is_dense()
        optional y(Write if self.out.is_dense() => self.x, tokens * h);
        /// `[tokens]` f32, write if out.is_dense()
        optional rstd(Write if self.out.is_dense() => Dtype::F32, tokens);
        scalar eps(f32);
        scalar tokens(u32);
        /// `[tokens, h]` i8, write if out.is_int8(): of `y`
        optional q(Write if self.out.is_int8() => Dtype::I8, tokens * h);
        /// `[tokens]` f32, write if out.is_int8()
        optional scale(Write if self.out.is_int8() => Dtype::F32, tokens);
    }
    |self, p| [tokens = p.tokens, h = self.h] {
        before q unless self.out.is_int8();
    }
    /// Normalizes rows, after adding a residual branch if `residual`.
    kernel RmsnormFwd = "rmsnorm.fwd" { gamma: Gamma, h: u32, out: Out, residual: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `rmsnorm.bwd`.
    pub struct rmsnorm_bwd_params, RmsnormBwdArgs {
        /// `[tokens, h]` x, read
        operand dy(Read => self.x, tokens * h);
        /// `[tokens, h]` x, read: what the forward pass normalized
        operand x(Read => self.x, tokens * h);
        /// `[h]` x, read
        operand gamma(Read => self.x, h);
        /// `[tokens]` f32, read, uniform(0.5, 1.5)
        operand rstd(Read => Dtype::F32, tokens, Content::Uniform(0.5, 1.5));
        /// `[tokens, h]` x, read if residual
        optional dresidual(Read if self.residual => self.x, tokens * h);
        /// `[tokens, h]` x, write
        operand dx(Write => self.x, tokens * h);
        /// `[ceil(tokens / rows), h]` f32, write
        operand dgamma_partial(Write => Dtype::F32, tokens.div_ceil(rows) * h);
        scalar tokens(u32);
        /// rows of `x` that share one partial sum
        scalar rows(u32);
        /// `[tokens, h]` i8, write if out.is_int8(): of `dx`
        optional q(Write if self.out.is_int8() => Dtype::I8, tokens * h);
        /// `[tokens]` f32, write if out.is_int8()
        optional scale(Write if self.out.is_int8() => Dtype::F32, tokens);
    }
    |self, p| [tokens = p.tokens, h = self.h, rows = p.rows] {
        before q unless self.out.is_int8();
    }
    /// Computes the gradient of the rows, added to the residual stream's if `residual`, and partial sums of gamma's.
    kernel RmsnormBwd = "rmsnorm.bwd" { gamma: Gamma, h: u32, out: Out, residual: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `rmsnorm.dgrad`.
    pub struct rmsnorm_dgrad_params, RmsnormDgradArgs {
        /// `[tokens, h]` x, read
        operand dy(Read => self.x, tokens * h);
        /// `[tokens, h]` x, read: what the forward pass normalized
        operand x(Read => self.x, tokens * h);
        /// `[h]` x, read
        operand gamma(Read => self.x, h);
        /// `[tokens]` f32, read, uniform(0.5, 1.5)
        operand rstd(Read => Dtype::F32, tokens, Content::Uniform(0.5, 1.5));
        /// `[tokens, h]` x, read if residual
        optional dresidual(Read if self.residual => self.x, tokens * h);
        /// `[tokens, h]` x, write
        operand dx(Write => self.x, tokens * h);
        scalar tokens(u32);
        internal reserved(u32);
        /// `[tokens, h]` i8, write if out.is_int8(): of `dx`
        optional q(Write if self.out.is_int8() => Dtype::I8, tokens * h);
        /// `[tokens]` f32, write if out.is_int8()
        optional scale(Write if self.out.is_int8() => Dtype::F32, tokens);
    }
    |self, p| [tokens = p.tokens, h = self.h] {
        before q unless self.out.is_int8();
    }
    /// Computes the gradient of the rows where gamma does not train.
    kernel RmsnormDgrad = "rmsnorm.dgrad" { gamma: Gamma, h: u32, out: Out, residual: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `rope.fwd` and `rope.bwd`.
    pub struct rope_params, RopeArgs {
        /// `[tokens, row_stride]` x, update: the first heads * d of a row; the rest is untouched
        operand x(ReadWrite => self.x, tokens * row_stride);
        /// `[tokens]` u32, read, ids(seq_len): of each token in its sequence
        operand position(Read => Dtype::U32, tokens, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        scalar tokens(u32);
        /// positions that there are
        scalar seq_len(u32);
        /// query heads and key heads together: they are adjacent
        scalar heads(u32);
        /// elements of a row
        scalar row_stride(u32);
    }
    |self, p| [tokens = p.tokens, row_stride = p.row_stride, seq_len = p.seq_len, d = self.d] {}
    /// Rotates query and key heads.
    kernel RopeFwd = "rope.fwd" { d: u32, x: Dtype };
    /// Rotates their gradients back.
    kernel RopeBwd = "rope.bwd" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `rope.store`.
    /// Heads have the bits of `rope.fwd`. No two rows have the same slot and position.
    pub struct rope_store_params, RopeStoreArgs {
        /// `[rows, heads + 2 * kv_heads, d]` x, update: in each row queries, then keys and values
        operand qkv(ReadWrite => self.x, rows * (heads + 2 * kv_heads) * d);
        /// `[rows]` u32, read, slots(slots): the row's sequence in the pool, or IDLE_SLOT: it stays
        operand slot(Read => Dtype::U32, rows, Content::Slots(p.slots));
        /// `[rows]` u32, read, ids(seq_len): the row's, in its sequence
        operand position(Read => Dtype::U32, rows, Content::Ids(p.seq_len));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand cos(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[seq_len, d / 2]` f32, read, uniform(-1.0, 1.0)
        operand sin(Read => Dtype::F32, seq_len * (d / 2), Content::Uniform(-1.0, 1.0));
        /// `[slots, kv_heads, seq_len, d]` x, update: those of other positions are untouched
        operand keys(ReadWrite => self.x, slots * kv_heads * seq_len * d);
        /// `[slots, kv_heads, seq_len, d]` x, update: those of other positions are untouched
        operand values(ReadWrite => self.x, slots * kv_heads * seq_len * d);
        scalar rows(u32);
        /// sequences that the pool has room for
        scalar slots(u32);
        /// positions of each
        scalar seq_len(u32);
        /// query heads
        scalar heads(u32);
        /// key and value heads
        scalar kv_heads(u32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, heads = p.heads, kv_heads = p.kv_heads, d = self.d, seq_len = p.seq_len, slots =
    p.slots] {
        bytes = rows * (8 + 4 * d + (2 * heads + 4 * kv_heads) * d * self.x.bytes());
    }
    /// Rotates query heads of rows in place, and stores rotated keys and values in a pool.
    kernel RopeStore = "rope.store" { d: u32, x: Dtype };
}

parameters! {
    /// Parameter block of `sample`.
    pub struct sample_params, SampleArgs {
        /// `[rows, vocab]` x, read, logits(vocab)
        operand logits(Read => self.x, rows * vocab, Content::Logits(p.vocab));
        /// `[rows, 2]` u32, read, ids(4294967295): number of the row's sequence, its lower half first
        operand sequence(Read => Dtype::U32, rows * 2, Content::Ids(4294967295));
        /// `[rows]` u32, read, ids(4294967295): the row's, in its sequence
        operand position(Read => Dtype::U32, rows, Content::Ids(4294967295));
        /// `[rows]` u32, write: NO_TOKEN if a logit is not finite
        operand token(Write => Dtype::U32, rows);
        /// `[rows]` f32, write: of the token, at temperature 1; 0 if a logit is not finite
        operand log_prob(Write => Dtype::F32, rows);
        /// `[rows]` f32, write: log-sum-exp of all logits; 0 if one is not finite
        operand lse(Write => Dtype::F32, rows);
        scalar seed(u64);
        scalar rows(u32);
        /// at most 2^18
        scalar vocab(u32);
        /// 0: the token of the largest logit
        scalar temperature(f32);
        /// draws from as many tokens, the most probable ones; 0: from all
        scalar top_k(u32);
        /// draws from the fewest tokens that have this share of the probability; 1: from all
        scalar top_p(f32);
        internal reserved(u32);
    }
    |self, p| [rows = p.rows, vocab = p.vocab] {}
    /// Draws a token of each row of logits.
    kernel Sample = "sample" { x: Dtype };
}

parameters! {
    /// Parameter block of `sample.advance`.
    /// A row whose sequence ends is idle from then on, and its last token and position stay. So is a row for which no
    /// token was drawn; its `end` says so.
    pub struct sample_advance_params, SampleAdvanceArgs {
        /// `[rows]` u32, read, targets(64): drawn after the row's own token, or NO_TOKEN
        operand token(Read => Dtype::U32, rows, Content::Targets(64));
        /// `[rows]` f32, read: of the token
        operand log_prob(Read => Dtype::F32, rows);
        /// `[rows]` f32, read: log-sum-exp of the logits that it was drawn from
        operand lse(Read => Dtype::F32, rows);
        /// `[rows]` u32, update, ids(seq_len): tokens that the row's sequence has at most; NO_TOKEN once none was
        /// drawn
        operand end(ReadWrite => Dtype::U32, rows, Content::Ids(p.seq_len));
        /// `[stops]` u32, read, ids(64): tokens that end a sequence
        operand stop(Read => Dtype::U32, stops, Content::Ids(64));
        /// `[rows]` u32, update, slots(slots): the row's sequence, or IDLE_SLOT
        operand slot(ReadWrite => Dtype::U32, rows, Content::Slots(p.slots));
        /// `[rows]` u32, update, ids(seq_len): the row's, in its sequence
        operand position(ReadWrite => Dtype::U32, rows, Content::Ids(p.seq_len));
        /// `[rows]` u32, update, ids(64): the row's token
        operand id(ReadWrite => Dtype::U32, rows, Content::Ids(64));
        /// `[slots, seq_len]` u32, update, ids(64): tokens of the sequences; those of other positions are untouched
        operand tokens(ReadWrite => Dtype::U32, slots * seq_len, Content::Ids(64));
        /// `[slots, seq_len]` f32, update: of these tokens
        operand log_probs(ReadWrite => Dtype::F32, slots * seq_len);
        /// `[slots, seq_len]` f32, update: of the logits that they were drawn from
        operand lses(ReadWrite => Dtype::F32, slots * seq_len);
        scalar rows(u32);
        /// sequences that there is room for
        scalar slots(u32);
        /// positions of each
        scalar seq_len(u32);
        scalar stops(u32);
    }
    |self, p| [rows = p.rows, stops = p.stops, slots = p.slots, seq_len = p.seq_len] {
        bytes = rows * 44;
    }
    /// Moves rows on to the tokens that were drawn for them.
    kernel SampleAdvance = "sample.advance" {};
}

parameters! {
    /// Parameter block of `sample.score`.
    pub struct sample_score_params, SampleScoreArgs {
        /// `[rows, vocab]` x, read, logits(vocab)
        operand logits(Read => self.x, rows * vocab, Content::Logits(p.vocab));
        /// `[rows]` u32, read, targets(vocab): MASKED_TOKEN of a row that is not read
        operand token(Read => Dtype::U32, rows, Content::Targets(p.vocab));
        /// `[rows]` f32, write: of the token, at temperature 1; 0 if it is masked or a logit is not finite
        operand log_prob(Write => Dtype::F32, rows);
        /// `[rows]` f32, write: log-sum-exp of all logits; 0 likewise
        operand lse(Write => Dtype::F32, rows);
        scalar rows(u32);
        /// at most 2^18
        scalar vocab(u32);
    }
    |self, p| [rows = p.rows, vocab = p.vocab] {}
    /// Computes log-probabilities of given tokens, with the bits that `sample` has of tokens that it draws.
    kernel SampleScore = "sample.score" { x: Dtype };
}

parameters! {
    /// Parameter block of `sample.top`.
    pub struct sample_top_params, SampleTopArgs {
        /// `[rows, vocab]` x, read
        operand logits(Read => self.x, rows * vocab);
        /// `[rows, keep]` u32, write: the most likely token first; of equal ones the smallest
        operand ids(Write => Dtype::U32, rows * keep);
        /// `[rows, keep + 1]` f32, write: at `temperature`, nats; the last entry is for the remaining tokens combined
        operand log_probs(Write => Dtype::F32, rows * (keep + 1));
        scalar rows(u32);
        scalar vocab(u32);
        /// below `vocab`, at most MOST_KEPT
        scalar keep(u32);
        scalar temperature(f32);
    }
    |self, p| [rows = p.rows, vocab = p.vocab, keep = p.keep] {}
    /// Computes log-probabilities of the most likely tokens of each row, and of the remaining tokens combined.
    kernel SampleTop = "sample.top" { x: Dtype };
}

parameters! {
    /// Parameter block of `scale`.
    pub struct scale_params, ScaleArgs {
        /// `[n]` x, read
        operand x(Read => self.x, n);
        /// `[n]` x, read if residual
        optional residual(Read if self.residual => self.x, n);
        /// `[n]` x, write
        operand y(Write => self.x, n);
        /// elements
        scalar n(u64);
        /// of `x`
        scalar factor(f32);
        internal reserved(u32);
    }
    |self, p| [n = p.n] {}
    /// Multiplies elements by a factor, and adds a residual stream if `residual`.
    kernel Scale = "scale" { residual: bool, x: Dtype };
}

parameters! {
    /// Parameter block of `swiglu.fwd`.
    pub struct swiglu_fwd_params, SwigluFwdArgs {
        /// `[tokens, 2 * n]` x, read: gate, then up
        operand gate_up(Read => self.x, tokens * (2 * n));
        /// `[tokens, n]` x, write if out.is_dense()
        optional y(Write if self.out.is_dense() => self.x, tokens * n);
        scalar tokens(u32);
        scalar n(u32);
        /// `[tokens, n]` i8, write if out.is_int8(): of `y`
        optional q(Write if self.out.is_int8() => Dtype::I8, tokens * n);
        /// `[tokens]` f32, write if out.is_int8()
        optional scale(Write if self.out.is_int8() => Dtype::F32, tokens);
    }
    |self, p| [tokens = p.tokens, n = p.n] {
        before q unless self.out.is_int8();
    }
    /// Gates the up projection.
    kernel SwigluFwd = "swiglu.fwd" { gate: Gate, n: Option<u32>, out: Out, x: Dtype };
}

parameters! {
    /// Parameter block of `swiglu.bwd`.
    pub struct swiglu_bwd_params, SwigluBwdArgs {
        /// `[tokens, 2 * n]` x, read: gate, then up
        operand gate_up(Read => self.x, tokens * (2 * n));
        /// `[tokens, n]` x, read
        operand dy(Read => self.x, tokens * n);
        /// `[tokens, 2 * n]` x, write
        operand dgate_up(Write => self.x, tokens * (2 * n));
        scalar tokens(u32);
        scalar n(u32);
        /// `[tokens, 2 * n]` i8, write if out.is_int8(): of `dgate_up`
        optional q(Write if self.out.is_int8() => Dtype::I8, tokens * (2 * n));
        /// `[tokens]` f32, write if out.is_int8()
        optional scale(Write if self.out.is_int8() => Dtype::F32, tokens);
    }
    |self, p| [tokens = p.tokens, n = p.n] {
        before q unless self.out.is_int8();
    }
    /// Computes the gradients of gate and up.
    kernel SwigluBwd = "swiglu.bwd" { gate: Gate, n: Option<u32>, out: Out, x: Dtype };
}

operations! {
    AdamwUpdate, Add, AttentionBwd, AttentionDecode, AttentionDelta, AttentionFwd, BitsCompare, Cast, ColumnSumFinish,
    ColumnSumPartial, ConvBwd, ConvDecode, ConvDgrad, ConvFwd, DeltaRuleBwd, DeltaRuleDecode, DeltaRuleFwd,
    DeltaRuleSolve, DeltaRuleStateBwd, Dequant, EmbeddingBwd, EmbeddingFwd, FakeQuant, Fill, GatedNormBwd,
    GatedNormDgrad, GatedNormFwd, GemmDgrad, GemmFwd, GemmSwiglu, GemmWgrad, GradDistancePartial, GradNormFinish,
    GradNormPartial, HeadCe, HeadCompare, HeadDistill, HeadJsd, HeadMetrics, HeadNll, HeadTopk, Int8Columns,
    Int8Quantize, KvStore, LoraDgradA, LoraDgradB, LoraFwdA, LoraFwdB, LoraWgrad, MoeCombine, MoePermute, MoeRoute,
    MoeSort, OutputGateBwd, OutputGateFwd, PostNormFwd, QkNormBwd, QkNormDgrad, QkNormFwd, QkNormGatedBwd,
    QkNormGatedDgrad, QkNormGatedFwd, QkNormRowBwd, QkNormRowDgrad, QkNormRowFwd, RmsnormBwd, RmsnormDgrad,
    RmsnormFwd, RopeBwd, RopeFwd, RopeStore, Sample, SampleAdvance, SampleScore, SampleTop, Scale, SwigluBwd,
    SwigluFwd
}
