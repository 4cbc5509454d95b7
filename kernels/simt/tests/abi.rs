//! `softcap/softcap.h` in Rust, as `cargo xtask abi` makes it.

use bytemuck::{Pod, Zeroable};

use crate::{Content, Dtype, Kernel, Operand, key, operand};

#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct softcap_fwd_params {
    pub x: u64,
    pub y: u64,
    pub tokens: u32,
    pub n: u32,
    pub cap: f32,
    pub reserved: u32,
}

key! {
    /// Bounds elements.
    pub struct SoftcapFwd = "softcap.fwd" { x: Dtype }
}

impl Kernel for SoftcapFwd {
    type Params = softcap_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let elems = u64::from(p.tokens) * u64::from(p.n);
        let x = operand!(Read Self::Params, x: self.x, elems).with(Content::Normal(40.0));
        vec![x, operand!(Write Self::Params, y: self.x, elems)]
    }
}
