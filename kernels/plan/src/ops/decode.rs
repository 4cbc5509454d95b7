//! Decoding: rows at places of their own, and attention to keys and values that earlier rows have stored.

use precast_kernels::abi::{
    AttentionDecodeArgs, BitsCompareArgs, KvStoreArgs, RopeStoreArgs, SampleAdvanceArgs, SampleArgs,
};
use precast_kernels::rope::RopeStore;
use precast_kernels::sample::{Sample, SampleAdvance};
use precast_kernels::{attention::AttentionDecode, bits::BitsCompare, kv::KvStore};

use super::{Attended, Heads, Ops};
use crate::cache::{BitCounts, DecodeRows, KeyValueCache, RowState};
use crate::rope::Rope;
use crate::sampling::Sampling;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Stores the rotated keys and the values of packed q, k and v.
    pub fn store(&mut self, name: &str, qkv: Tensor, heads: Heads, cache: KeyValueCache) {
        let DecodeRows { slots, positions, .. } = self.decode_rows();
        let args = KvStoreArgs {
            qkv,
            slot: slots,
            position: positions,
            keys: cache.keys,
            values: cache.values,
            rows: self.tokens,
            slots: cache.slots,
            seq_len: cache.seq_len,
            heads: heads.query,
            kv_heads: heads.key,
        };
        self.launch(name, KvStore { d: heads.head_dim, x: self.x }, args);
    }

    /// Rotates queries, and stores rotated keys and values, of packed q, k and v.
    pub fn rope_store(&mut self, name: &str, qkv: Tensor, heads: Heads, rope: Rope, cache: KeyValueCache) {
        let DecodeRows { slots, positions, .. } = self.decode_rows();
        let args = RopeStoreArgs {
            qkv,
            slot: slots,
            position: positions,
            cos: rope.cos,
            sin: rope.sin,
            keys: cache.keys,
            values: cache.values,
            rows: self.tokens,
            slots: cache.slots,
            seq_len: cache.seq_len,
            heads: heads.query,
            kv_heads: heads.key,
        };
        self.launch(name, RopeStore { d: heads.head_dim, x: self.x }, args);
    }

    /// Lowers attention of each row to its own and all earlier keys of its slot.
    pub fn attention_decode(&mut self, name: &str, qkv: Tensor, heads: Heads, cache: KeyValueCache) -> Attended {
        let DecodeRows { slots, positions, is_step, .. } = self.decode_rows();
        let o = self.rows(name, heads.query * heads.head_dim);
        let args = AttentionDecodeArgs {
            qkv,
            keys: cache.keys,
            values: cache.values,
            slot: slots,
            position: positions,
            o,
            rows: self.tokens,
            slots: cache.slots,
            seq_len: cache.seq_len,
            heads: heads.query,
            kv_heads: heads.key,
            scale: heads.scale,
            is_step: is_step.into(),
        };
        self.launch(name, AttentionDecode { d: heads.head_dim, window: heads.window, x: self.x }, args);
        Attended { o, lse: None }
    }

    /// Draws the next token of each row from its logits, and moves the row, whose token is in `ids`, on to it.
    pub fn sample(&mut self, name: &str, logits: Tensor, how: Sampling, (ids, state): (Tensor, RowState)) {
        let (rows, DecodeRows { slots, positions, seq_len, .. }) = (self.tokens, self.decode_rows());
        let token = self.words("token", rows.into());
        let [log_prob, lse] = ["log_prob", "lse"].map(|part| self.statistics(part, rows.into()));
        let vocab = (logits.elems / u64::from(rows)) as u32;
        let args = SampleArgs {
            logits,
            sequence: state.sequences.slice(0, 2 * u64::from(rows)),
            position: positions,
            token,
            log_prob,
            lse,
            seed: how.seed,
            rows,
            vocab,
            temperature: how.temperature,
            top_k: how.top_k,
            top_p: how.top_p,
        };
        self.launch(name, Sample { x: self.x }, args);
        let args = SampleAdvanceArgs {
            token,
            log_prob,
            lse,
            end: state.ends.slice(0, rows.into()),
            stop: state.stops,
            slot: slots,
            position: positions,
            id: ids,
            tokens: state.tokens,
            log_probs: state.log_probs,
            lses: state.lses,
            rows,
            slots: (state.tokens.elems / u64::from(seq_len)) as u32,
            seq_len,
            stops: state.stops.elems as u32,
        };
        self.launch("advance", SampleAdvance {}, args);
    }

    /// Compares each row's logits with those expected at its place, `[slots, seq_len, vocab]`, bit by bit.
    pub fn compare_bits(&mut self, name: &str, logits: Tensor, expected: Tensor, counts: BitCounts<Tensor>) {
        let (rows, DecodeRows { slots, positions, seq_len, .. }) = (self.tokens, self.decode_rows());
        let args = BitsCompareArgs {
            found: logits,
            expected,
            slot: slots,
            position: positions,
            compared: counts.compared,
            differing: counts.differing,
            rows,
            slots: (counts.compared.elems / u64::from(seq_len)) as u32,
            seq_len,
            vocab: (logits.elems / u64::from(rows)) as u32,
        };
        self.launch(name, BitsCompare { x: self.x }, args);
    }
}
