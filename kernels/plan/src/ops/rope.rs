//! The rotary embedding of queries and keys, in place.

use precast_kernels::abi::rope_params;
use precast_kernels::rope::{RopeBwd, RopeFwd};

use super::{Heads, Ops};
use crate::buffer::Tensor;
use crate::rope::Rope;

impl Ops<'_> {
    /// Turns the queries and keys of packed q, k and v.
    pub fn rope(&mut self, name: &str, qkv: Tensor, heads: Heads, rope: Rope) {
        let params = self.rope_params(qkv, heads, rope);
        self.launch(name, RopeFwd { d: heads.head_dim, x: self.x }, &params);
    }

    /// Turns their gradients back.
    pub fn rope_backward(&mut self, name: &str, dqkv: Tensor, heads: Heads, rope: Rope) {
        let params = self.rope_params(dqkv, heads, rope);
        self.launch(&format!("{name}_bwd"), RopeBwd { d: heads.head_dim, x: self.x }, &params);
    }

    fn rope_params(&self, x: Tensor, heads: Heads, rope: Rope) -> rope_params {
        rope_params {
            x: x.address(),
            cos: rope.cos.address(),
            sin: rope.sin.address(),
            tokens: self.tokens(),
            seq_len: self.seq_len,
            heads: heads.query + heads.key,
            row_stride: heads.qkv_width(),
        }
    }
}
