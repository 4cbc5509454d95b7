//! Kernels of `kernels/vectors.cu`, `kernels/rows.cu`, as they are.
//!
//! Not edited by hand: `precast-aot abi kernels/vectors.cu kernels/rows.cu --include third_party/include --out src/kernels.rs` regenerates it.
// Headers: 12c33357e5c885d2f0563a3fdd78dc9d6068e1514ed3eb5891656a7c9dd94a90 bd353308046bfa8e8be90504ef3b9fb35c73f6bf79694bcecad7032d7d2777a5
// Body: 5adf5241ce7aac25863da6012487e09c4c3632f10cf3bae9d552a181d73fe971
#![cfg_attr(rustfmt, rustfmt_skip)]
#![allow(dead_code, missing_docs, non_camel_case_types, non_snake_case, unused_imports)]

use precast_core::abi::address;
use precast_core::bytemuck::{NoUninit, Zeroable};
use precast_core::plain::{PlainKernel, PlainUnit};
use precast_core::{Source, plain, source};

/// `affine`, 36 bytes.
#[derive(Clone, Copy, Debug, PartialEq, NoUninit, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C, align(4))]
pub struct affine {
    /// `float[4]`
    pub scale: [f32; 4],
    /// `float[4]`
    pub shift: [f32; 4],
    /// `int`
    pub steps: i32,
}

/// `float4`, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, NoUninit, Zeroable)]
#[bytemuck(crate = "precast_core::bytemuck")]
#[repr(C, align(16))]
pub struct float4 {
    /// `float`
    pub x: f32,
    /// `float`
    pub y: f32,
    /// `float`
    pub z: f32,
    /// `float`
    pub w: f32,
}

pub static VECTORS_CU: PlainUnit = PlainUnit {
    source: Source {
        path: "kernels/vectors.cu",
        text: include_str!("../kernels/vectors.cu"),
        headers: &[
            ("reduce.cuh", include_str!("../kernels/reduce.cuh")),
        ],
        common: &source::AS_IT_IS,
    },
    entries: &["saxpy", "sum", "transform"],
    instances: &[],
    interface: "12c33357e5c885d2f0563a3fdd78dc9d6068e1514ed3eb5891656a7c9dd94a90",
    file: "src/kernels.rs",
    command: "precast-aot abi kernels/vectors.cu kernels/rows.cu --include third_party/include --out src/kernels.rs",
};

plain! {
    /// `saxpy` of `kernels/vectors.cu`.
    /// - `x`: `const float *__restrict`
    /// - `y`: `float *__restrict`
    /// - `a`: `float`
    /// - `n`: `int`
    VECTORS_CU SAXPY = "saxpy" as "saxpy",
    saxpy(x: address = 0, y: address = 8, a: f32 = 16, n: i32 = 20)
}

plain! {
    /// `sum` of `kernels/vectors.cu`.
    /// - `x`: `const float *`
    /// - `partial`: `float *`
    /// - `n`: `unsigned int`
    VECTORS_CU SUM = "sum" as "sum",
    sum(x: address = 0, partial: address = 8, n: u32 = 16)
}

plain! {
    /// `transform` of `kernels/vectors.cu`.
    /// - `map`: `affine`
    /// - `n`: `short`
    /// - `bias`: `float4`
    /// - `y`: `float4 *`
    VECTORS_CU TRANSFORM = "transform" as "transform",
    transform(map: affine = 0, n: i16 = 36, bias: float4 = 48, y: address = 64)
}

pub static ROWS_CU: PlainUnit = PlainUnit {
    source: Source {
        path: "kernels/rows.cu",
        text: include_str!("../kernels/rows.cu"),
        headers: &[
            ("activations/gelu.h", include_str!("../third_party/include/activations/gelu.h")),
            ("constants.h", include_str!("../third_party/include/activations/constants.h")),
        ],
        common: &source::AS_IT_IS,
    },
    entries: &["gelu", "gather"],
    instances: &[],
    interface: "bd353308046bfa8e8be90504ef3b9fb35c73f6bf79694bcecad7032d7d2777a5",
    file: "src/kernels.rs",
    command: "precast-aot abi kernels/vectors.cu kernels/rows.cu --include third_party/include --out src/kernels.rs",
};

plain! {
    /// `gelu` of `kernels/rows.cu`.
    /// - `x`: `const double *`
    /// - `y`: `double *`
    /// - `n`: `u64`
    ROWS_CU GELU = "gelu" as "gelu",
    gelu(x: address = 0, y: address = 8, n: u64 = 16)
}

plain! {
    /// `gather` of `kernels/rows.cu`.
    /// - `x`: `const float *`
    /// - `index`: `const long long *`
    /// - `y`: `float *`
    /// - `rows`: `u64`
    /// - `width`: `u64`
    /// - `zeros`: `bool`
    ROWS_CU GATHER = "gather" as "gather",
    gather(x: address = 0, index: address = 8, y: address = 16, rows: u64 = 24, width: u64 = 32, zeros: bool = 40)
}

/// Every kernel, for `Kernels::new`.
pub const PLAIN: &[&PlainKernel] = &[&SAXPY, &SUM, &TRANSFORM, &GELU, &GATHER];
