//! Types of `types.h`, of which every parameter block is made.
#![allow(non_camel_case_types)] // The headers' own names.

use bytemuck::{Pod, Zeroable};

/// A device address; in a plan, a virtual one.
pub type address = u64;

/// A CUtensorMap: how a box of a matrix is copied. Opaque: the CUDA driver fills it in when a launch is prepared, for
/// the variants that use it; elsewhere it is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct tensor_map {
    /// The driver's 128 bytes.
    pub opaque: [u64; 16],
}
