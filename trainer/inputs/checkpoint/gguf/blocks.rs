//! The types of tensors in a GGUF file: how many values a block packs into how many bytes, and their `f32` values.

use std::ops::Range;

use half::f16;
use precast_kernels::Block;
use precast_kernels::dequant::dequantize;
use rayon::prelude::*;

/// Numbers that one task of the thread pool widens.
const NUMBERS_A_TASK: usize = 1 << 16;

/// A type of tensor that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockType {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

/// Names of ggml's types by code; empty where there is none any more.
const NAMES: [&str; 41] = [
    "F32", "F16", "Q4_0", "Q4_1", "", "", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16", "I32", "I64",
    "F64", "IQ1_M", "BF16", "", "", "", "TQ1_0", "TQ2_0", "", "", "", "MXFP4", "NVFP4",
];

/// How errors name the type with this code.
pub(super) fn type_name(code: u32) -> String {
    match usize::try_from(code).ok().and_then(|code| NAMES.get(code)) {
        Some(name) if !name.is_empty() => (*name).to_owned(),
        _ => format!("{code} (which ggml does not define)"),
    }
}

impl BlockType {
    pub(super) const ALL: [Self; 11] = [
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Its code in the file.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
            Self::Bf16 => 30,
        }
    }

    /// The type with this code, if it is one that is read.
    pub(super) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// What ggml calls it.
    pub(super) fn name(self) -> &'static str {
        NAMES[self.code() as usize]
    }

    /// The block format; of single numbers there is none.
    pub(super) fn block(self) -> Option<Block> {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => None,
            Self::Q4_0 => Some(Block::Q4_0),
            Self::Q4_1 => Some(Block::Q4_1),
            Self::Q5_0 => Some(Block::Q5_0),
            Self::Q5_1 => Some(Block::Q5_1),
            Self::Q8_0 => Some(Block::Q8_0),
            Self::Q4K => Some(Block::Q4_K),
            Self::Q5K => Some(Block::Q5_K),
            Self::Q6K => Some(Block::Q6_K),
        }
    }

    /// Values of a block.
    pub(super) fn len(self) -> usize {
        self.block().map_or(1, |block| block.elems() as usize)
    }

    /// Bytes of a block.
    pub(super) fn bytes(self) -> usize {
        match (self.block(), self) {
            (Some(block), _) => block.bytes() as usize,
            (None, Self::F32) => 4,
            (None, _) => 2,
        }
    }

    /// Where whole blocks of elements are, of a tensor whose values start so.
    pub(super) fn range(self, start: u64, elements: &Range<u64>) -> Range<u64> {
        let at = |element: u64| start + element / self.len() as u64 * self.bytes() as u64;
        at(elements.start)..at(elements.end)
    }

    /// The values of whole blocks, on all threads. `out` has room for exactly as many.
    pub(super) fn dequantize(self, blocks: &[u8], out: &mut [f32]) {
        match (self.block(), self) {
            (Some(block), _) => dequantize(block, blocks, out),
            (None, Self::F32) => widen(blocks, out, f32::from_le_bytes),
            (None, Self::F16) => widen(blocks, out, |bytes| f16::from_le_bytes(bytes).to_f32()),
            (None, _) => widen(blocks, out, |[low, high]| f32::from_le_bytes([0, 0, low, high])),
        }
    }
}

/// Single numbers, on all threads.
fn widen<const BYTES: usize>(numbers: &[u8], out: &mut [f32], value: impl Fn([u8; BYTES]) -> f32 + Sync) {
    let tasks = numbers.par_chunks(BYTES * NUMBERS_A_TASK).zip(out.par_chunks_mut(NUMBERS_A_TASK));
    tasks.for_each(|(numbers, out)| {
        out.iter_mut().zip(numbers.as_chunks().0).for_each(|(out, bytes)| *out = value(*bytes));
    });
}
