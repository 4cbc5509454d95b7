//! The parameter block of `softcap/softcap.h`, as `cargo xtask abi` would make it.

use bytemuck::{Pod, Zeroable};

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
