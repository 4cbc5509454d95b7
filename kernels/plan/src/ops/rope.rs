//! The rotary embedding of queries and keys, in place.

use precast_kernels::abi::RopeArgs;
use precast_kernels::rope::{RopeBwd, RopeFwd};

use super::{Heads, Ops};
use crate::rope::Rope;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Rotates the queries and keys of packed q, k and v.
    pub fn rope(&mut self, name: &str, qkv: Tensor, heads: Heads, rope: Rope) {
        let args = self.rope_args(qkv, heads, rope);
        self.launch(name, RopeFwd { d: heads.head_dim, x: self.x }, args);
    }

    /// Rotates their gradients back.
    pub fn rope_backward(&mut self, name: &str, dqkv: Tensor, heads: Heads, rope: Rope) {
        let args = self.rope_args(dqkv, heads, rope);
        self.launch(&format!("{name}_bwd"), RopeBwd { d: heads.head_dim, x: self.x }, args);
    }

    fn rope_args(&self, x: Tensor, heads: Heads, rope: Rope) -> RopeArgs<Tensor> {
        let (position, seq_len) = self.positions();
        RopeArgs {
            x,
            position,
            cos: rope.cos,
            sin: rope.sin,
            tokens: self.tokens,
            seq_len,
            heads: heads.query + heads.key,
            row_stride: heads.qkv_width(),
        }
    }
}
