//! Kernels of `kernels/histogram.ptx`, as they are.
//!
//! Not edited by hand: `precast-aot abi kernels/histogram.ptx --out src/kernels.rs` regenerates it.
// Headers: f9e48263f750995580afb770d318fe86af0e2051f9fd84fb2be9a506238291cb
// Body: fb8dc3c2e3c03b34d925fc478b65ecfcb67f57a406bcea97a833cf3d65c3c5ab
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, unused_imports)]

use precast_core::abi::address;
use precast_core::bytemuck::{NoUninit, Zeroable};
use precast_core::plain::{PlainKernel, PlainUnit};
use precast_core::{Source, plain, source};

pub static HISTOGRAM_PTX: PlainUnit = PlainUnit {
    source: Source {
        path: "kernels/histogram.ptx",
        text: include_str!("../kernels/histogram.ptx"),
        headers: &[],
        common: &source::AS_IT_IS,
    },
    entries: &["histogram", "scale"],
    instances: &[],
    interface: "f9e48263f750995580afb770d318fe86af0e2051f9fd84fb2be9a506238291cb",
    file: "src/kernels.rs",
    command: "precast-aot abi kernels/histogram.ptx --out src/kernels.rs",
};

plain! {
    /// `histogram` of `kernels/histogram.ptx`.
    /// - `histogram_param_0`: `.u64`
    /// - `histogram_param_1`: `.u64`
    /// - `histogram_param_2`: `.u64`
    HISTOGRAM_PTX HISTOGRAM = "histogram" as "histogram",
    histogram(histogram_param_0: u64 = 0, histogram_param_1: u64 = 8, histogram_param_2: u64 = 16)
}

plain! {
    /// `scale` of `kernels/histogram.ptx`.
    /// - `scale_param_0`: `.u64`
    /// - `scale_param_1`: `.u32`
    HISTOGRAM_PTX SCALE = "scale" as "scale",
    scale(scale_param_0: u64 = 0, scale_param_1: u32 = 8)
}

/// Every kernel, for `Kernels::new`.
pub const PLAIN: &[&PlainKernel] = &[&HISTOGRAM, &SCALE];
