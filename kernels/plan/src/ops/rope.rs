//! The rotary embedding of queries and keys, in place.

use precast_kernels::abi::{RopeArgs, RopeAtArgs};
use precast_kernels::rope::{RopeAt, RopeBwd, RopeFwd};

use super::{Heads, Ops};
use crate::rope::Rope;
use precast_core::plan::Tensor;

impl Ops<'_> {
    /// Rotates the queries and keys of packed q, k and v.
    pub fn rope(&mut self, name: &str, qkv: Tensor, heads: Heads, rope: Rope) {
        if let Some(rows) = self.decodes {
            let args = RopeAtArgs {
                x: qkv,
                cos: rope.cos,
                sin: rope.sin,
                position: rows.positions,
                rows: self.tokens(),
                seq_len: rows.seq_len,
                heads: heads.query + heads.key,
                row_stride: heads.qkv_width(),
            };
            return self.launch(name, RopeAt { d: heads.head_dim, x: self.x }, args);
        }
        let args = self.rope_args(qkv, heads, rope);
        self.launch(name, RopeFwd { d: heads.head_dim, x: self.x }, args);
    }

    /// Rotates their gradients back.
    pub fn rope_backward(&mut self, name: &str, dqkv: Tensor, heads: Heads, rope: Rope) {
        let args = self.rope_args(dqkv, heads, rope);
        self.launch(&format!("{name}_bwd"), RopeBwd { d: heads.head_dim, x: self.x }, args);
    }

    fn rope_args(&self, x: Tensor, heads: Heads, rope: Rope) -> RopeArgs<Tensor> {
        RopeArgs {
            x,
            cos: rope.cos,
            sin: rope.sin,
            tokens: self.tokens(),
            seq_len: self.seq_len,
            heads: heads.query + heads.key,
            row_stride: heads.qkv_width(),
        }
    }
}
