//! Variants of kernels that quantize rows, which their threads keep in registers (`row.cuh`).

use super::rotation::rotation;
use crate::{Geometry, Operand, Tolerance, variant};

variant! {
    /// Several rows at a time, or a CTA per row.
    pub struct RotatedRows {
        /// Fewest CTAs per multiprocessor.
        blocks: u32,
        /// Threads per row.
        row_threads: u32,
        threads: u32,
    }
}

/// Columns of a row that a thread keeps in registers.
const SHARE: u32 = 32;
/// Most threads of a CTA: more leave too few registers for a share.
const MOST_THREADS: u32 = 1024;
/// Largest minimum of CTAs per multiprocessor: more of the smallest leave too few registers for a share.
const MOST_BLOCKS: u32 = 8;

/// Returns the fewest whole warps per row that leave each thread one share, if the row has rotation blocks; as many
/// rows as fit `several` threads, or one; and as many CTAs per multiprocessor as have `threads` together.
pub(crate) fn rows(columns: u32, several: u32, threads: u32) -> Vec<RotatedRows> {
    let rounds = columns.div_ceil(SHARE * MOST_THREADS);
    let row_threads = columns.div_ceil(SHARE * rounds.max(1)).next_multiple_of(32);
    let own = row_threads * (several / row_threads).max(1);
    let blocks = if rounds == 1 { (threads / own).clamp(1, MOST_BLOCKS) } else { 1 };
    rotation(columns).map(|_| RotatedRows { blocks, row_threads, threads: own }).into_iter().collect()
}

impl RotatedRows {
    pub(crate) fn geometry(self, rows: u32) -> Geometry {
        Geometry::linear(rows.div_ceil(self.threads / self.row_threads), self.threads)
    }
}

/// Quantized values may differ in the last bit: single values fall to the neighboring integer, and if rows were rounded
/// to bf16 before, a whole rotation block moves a little, and with it the row's scale. Without that rounding, `q` would
/// be off by 5e-3.
pub(crate) fn neighbors(operand: &Operand) -> Tolerance {
    match operand.name {
        "q" => Tolerance { norm: 2e-3, element: 1.01 / 127.0, absolute: 0.0 },
        "scale" => Tolerance { norm: 1e-3, element: 5e-3, absolute: 0.0 },
        _ => Tolerance::of(operand.format),
    }
}

/// Declares a source that writes rows in int8, with these headers of its family.
macro_rules! int8_source {
    ($family:literal, $file:literal, $abi:literal $(, $header:literal)*) => {
        $crate::Source {
            path: concat!($family, "/int8/", $file),
            text: include_str!(concat!("int8/", $file)),
            headers: &[
                (concat!($abi, ".h"), include_str!(concat!($abi, ".h"))),
                $((concat!($family, "/", $header), include_str!($header)),)*
                ("int8/row.cuh", include_str!("../int8/row.cuh")),
            ],
            common: &crate::COMMON,
        }
    };
}
pub(crate) use int8_source;
