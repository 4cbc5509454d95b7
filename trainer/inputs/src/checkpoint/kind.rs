//! Storage of a tensor's values: as single numbers, or in blocks that share scales.

use std::fmt;
use std::ops::Range;

use half::f16;
use precast_kernels::Block;
use precast_kernels::dequant::dequantize;
use rayon::prelude::*;
use safetensors::tensor::Dtype as Stored;

/// Values that one task of the thread pool widens.
const TASK: usize = 1 << 16;
/// Values and bytes of a block of AprQ4: a scale in f16, then two values a byte, the first in the low half.
const APR_Q4: (u64, u64) = (32, 18);
/// Bytes of AprQ8's one scale, an f32.
const APR_Q8_SCALE_BYTES: u64 = 4;

/// A kind of storage that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    F32,
    F16,
    Bf16,
    /// One of ggml's.
    Block(Block),
    AprQ4,
    AprQ8,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("F32"),
            Self::F16 => f.write_str("F16"),
            Self::Bf16 => f.write_str("BF16"),
            Self::Block(block) => block.fmt(f),
            Self::AprQ4 => f.write_str("AprQ4"),
            Self::AprQ8 => f.write_str("AprQ8"),
        }
    }
}

impl Kind {
    /// Returns the kind of a safetensors file's numbers, if it is one that is read.
    pub fn of(dtype: Stored) -> Option<Self> {
        match dtype {
            Stored::F32 => Some(Self::F32),
            Stored::F16 => Some(Self::F16),
            Stored::BF16 => Some(Self::Bf16),
            _ => None,
        }
    }

    /// Values and bytes of a block; a single number is one.
    fn block(self) -> (u64, u64) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Block(block) => (block.elems(), block.bytes()),
            Self::AprQ4 => APR_Q4,
            Self::AprQ8 => (1, 1),
        }
    }

    /// Values of a block.
    pub fn elems(self) -> u64 {
        self.block().0
    }

    /// Bytes of a tensor of so many values; none where they are too many.
    pub fn bytes(self, elements: u64) -> Option<u64> {
        let (elems, bytes) = self.block();
        let scale = self.scale(0, elements).map_or(0, |_| APR_Q8_SCALE_BYTES);
        elements.div_ceil(elems).checked_mul(bytes)?.checked_add(scale)
    }

    /// Where the one scale is of a tensor that has one and whose values start so. What has no values has none either.
    pub fn scale(self, start: u64, elements: u64) -> Option<Range<u64>> {
        (self == Self::AprQ8 && elements > 0).then_some(start..start + APR_Q8_SCALE_BYTES)
    }

    /// Where whole blocks of elements are, or those that end the tensor, whose values start so.
    pub fn range(self, start: u64, elements: &Range<u64>) -> Range<u64> {
        let (elems, bytes) = self.block();
        let first = self.scale(start, elements.end).map_or(start, |scale| scale.end);
        let at = |element: u64| first + element.div_ceil(elems) * bytes;
        at(elements.start)..at(elements.end)
    }

    /// The values of whole blocks, or of those that end the tensor, on all threads. `out` has room for exactly as many.
    /// `scale` is that of the tensor, if it has one.
    pub fn dequantize(self, scale: f32, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => widen(bytes, out, f32::from_le_bytes),
            Self::F16 => widen(bytes, out, |element| f16::from_le_bytes(element).to_f32()),
            Self::Bf16 => widen(bytes, out, |[low, high]| f32::from_le_bytes([0, 0, low, high])),
            Self::Block(block) => dequantize(block, bytes, out),
            Self::AprQ4 => {
                let (elems, block_bytes) = APR_Q4;
                let blocks = bytes.par_chunks_exact(block_bytes as usize);
                out.par_chunks_mut(elems as usize).zip(blocks).for_each(|(out, block)| {
                    let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
                    for (index, out) in out.iter_mut().enumerate() {
                        let nibble = block[2 + index / 2] >> (4 * (index % 2)) & 0xF;
                        *out = (f32::from(nibble) - 8.0) * scale;
                    }
                });
            }
            Self::AprQ8 => widen(bytes, out, |[value]: [u8; 1]| f32::from(value as i8) * scale),
        }
    }
}

/// Single numbers, on all threads.
fn widen<const N: usize>(numbers: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32 + Sync) {
    let tasks = numbers.par_chunks(N * TASK).zip(out.par_chunks_mut(TASK));
    tasks.for_each(|(numbers, out)| {
        out.iter_mut().zip(numbers.as_chunks().0).for_each(|(out, bytes)| *out = value(*bytes));
    });
}
