//! How a kernel that quantizes rows is built: a row lies in the registers of its threads (`row.cuh`).

use super::rotation;
use crate::{Geometry, Operand, Tolerance, variant};

variant! {
    /// Several rows at a time, or a CTA a row.
    pub struct RotatedRows {
        /// CTAs that must fit on a multiprocessor.
        blocks: u32,
        /// Threads that work on a row.
        row_threads: u32,
        /// Threads of a CTA.
        threads: u32,
    }
}

/// Columns of a row that a thread has in registers at a time.
const SHARE: u32 = 32;
/// Most threads of a CTA: with more there are fewer registers than a share needs.
const MOST_THREADS: u32 = 1024;
/// Most CTAs that must fit on a multiprocessor: with more of the smallest there are fewer registers than a share needs.
const MOST_BLOCKS: u32 = 8;

/// Whole warps for a row, as few as have a share for each thread, if the row is blocks that can be rotated; as many rows as fit
/// `several` threads, or one; and as many CTAs on a multiprocessor as have so many `threads` together.
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

/// What is quantized may differ in its last bit: single values fall to the neighboring integer, and where it was rounded to bf16
/// before, a whole rotation block moves a little, and with it the row's scale. Had it not been rounded, `q` were 5e-3 off.
pub(crate) fn neighbors(operand: &Operand) -> Tolerance {
    match operand.name {
        "q" => Tolerance { norm: 2e-3, element: 1.01 / 127.0, absolute: 0.0 },
        "scale" => Tolerance { norm: 1e-3, element: 5e-3, absolute: 0.0 },
        _ => Tolerance::of(operand.format),
    }
}
