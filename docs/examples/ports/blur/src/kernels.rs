//! Kernels of `kernels/blur.cu`, as they are.
//!
//! Not edited by hand: `precast-aot abi kernels/blur.cu --instance 'convert<float, unsigned char>' --out src/kernels.rs` regenerates it.
// Headers: 36550a905d41cddcbf42c70c2424cf2b37e5242feb6bf2e2987ec4e8cad9c19b
// Body: e650bf29d5f875a3971fef2007d8b40df4b040665a226c1cb0a183f1f3913f9e
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, unused_imports)]

use precast_core::abi::address;
use precast_core::bytemuck::{NoUninit, Zeroable};
use precast_core::plain::{PlainKernel, PlainUnit};
use precast_core::{Source, plain, source};

pub static BLUR_CU: PlainUnit = PlainUnit {
    source: Source {
        path: "kernels/blur.cu",
        text: include_str!("../kernels/blur.cu"),
        headers: &[],
        common: &source::AS_IT_IS,
    },
    entries: &["blur_rows", "scale", "convert"],
    instances: &["convert<float, unsigned char>"],
    interface: "36550a905d41cddcbf42c70c2424cf2b37e5242feb6bf2e2987ec4e8cad9c19b",
    file: "src/kernels.rs",
    command: "precast-aot abi kernels/blur.cu --instance 'convert<float, unsigned char>' --out src/kernels.rs",
};

plain! {
    /// `blur_rows` of `kernels/blur.cu`.
    /// - `in`: `const float *`
    /// - `out`: `float *`
    /// - `width`: `int`
    /// - `height`: `int`
    /// - `radius`: `int`
    BLUR_CU BLUR_ROWS = "blur_rows" as "blur_rows__PLACE_OF_DIGITS_",
    blur_rows(r#in: address = 0, out: address = 8, width: i32 = 16, height: i32 = 20, radius: i32 = 24)
}

plain! {
    /// `scale` of `kernels/blur.cu`.
    /// - `x`: `float *`
    /// - `by`: `float`
    /// - `to`: `float`
    /// - `n`: `int`
    BLUR_CU SCALE = "scale" as "scale__PLACE_OF_DIGITS_",
    scale(x: address = 0, by: f32 = 8, to: f32 = 12, n: i32 = 16)
}

plain! {
    /// `convert<float,unsigned_char>` of `kernels/blur.cu`.
    /// - `in`: `const float *`
    /// - `out`: `unsigned char *`
    /// - `n`: `int`
    BLUR_CU CONVERT_FLOAT_UNSIGNED_CHAR = "convert<float,unsigned_char>" as "_Z25convert__PLACE_OF_DIGITS_IfhEvPKT_PT0_i",
    convert_float_unsigned_char(r#in: address = 0, out: address = 8, n: i32 = 16)
}

/// Every kernel, for `Kernels::new`.
pub const PLAIN: &[&PlainKernel] = &[&BLUR_ROWS, &SCALE, &CONVERT_FLOAT_UNSIGNED_CHAR];
