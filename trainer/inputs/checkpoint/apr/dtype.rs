//! The types of tensors in an APR file: how many bytes their values take, and what those are as `f32`.

use std::ops::Range;

use half::{bf16, f16};
use precast_kernels::Block;
use precast_kernels::dequant::dequantize;
use rayon::prelude::*;

/// Names of the types that are read.
pub(super) const SUPPORTED: [&str; 7] = ["F32", "F16", "BF16", "Q4_K", "Q6_K", "AprQ4", "AprQ8"];

/// Values that one task of the thread pool widens.
const TASK: usize = 1 << 16;
/// Values and bytes of a block of AprQ4: a scale in f16, then two values a byte, the first in the low half.
const APR_Q4: (usize, usize) = (32, 18);
/// Bytes of AprQ8's one scale, an f32.
pub(super) const APR_Q8_SCALE_BYTES: u64 = 4;

/// A type of tensor that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
    F32,
    F16,
    Bf16,
    /// ggml's Q4_K or Q6_K.
    Block(Block),
    AprQ4,
    AprQ8,
}

/// How errors name the type with this code.
pub(super) fn dtype_name(code: u8) -> String {
    match (Dtype::from_code(code), code) {
        (Some(known), _) => known.name(),
        (None, 3) => "F64".to_owned(),
        (None, 4) => "I32".to_owned(),
        (None, 5) => "I64".to_owned(),
        (None, 6) => "I8".to_owned(),
        (None, 7) => "U8".to_owned(),
        (None, code) => format!("{code} (which APR does not define)"),
    }
}

impl Dtype {
    /// The type with this code, if it is one that is read. Older writers say 8 and 9 for AprQ4 and AprQ8.
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            30 => Self::Bf16,
            12 => Self::Block(Block::Q4_K),
            14 => Self::Block(Block::Q6_K),
            8 | 128 => Self::AprQ4,
            9 | 129 => Self::AprQ8,
            _ => return None,
        })
    }

    pub fn name(self) -> String {
        match self {
            Self::F32 => "F32".to_owned(),
            Self::F16 => "F16".to_owned(),
            Self::Bf16 => "BF16".to_owned(),
            Self::Block(block) => block.to_string(),
            Self::AprQ4 => "AprQ4".to_owned(),
            Self::AprQ8 => "AprQ8".to_owned(),
        }
    }

    /// Bytes of a tensor of so many values; none where its last dimension is no whole blocks.
    pub fn bytes(self, elements: u64, columns: u64) -> Option<u64> {
        match self {
            Self::F32 => elements.checked_mul(4),
            Self::F16 | Self::Bf16 => elements.checked_mul(2),
            Self::Block(block) => {
                columns.is_multiple_of(block.elems()).then(|| (elements / block.elems()).checked_mul(block.bytes()))?
            }
            Self::AprQ4 => elements.div_ceil(APR_Q4.0 as u64).checked_mul(APR_Q4.1 as u64),
            // What has no values has no scale either, or one.
            Self::AprQ8 if elements == 0 => Some(0),
            Self::AprQ8 => elements.checked_add(APR_Q8_SCALE_BYTES),
        }
    }

    /// Values of a block.
    pub fn len(self) -> u64 {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 | Self::AprQ8 => 1,
            Self::Block(block) => block.elems(),
            Self::AprQ4 => APR_Q4.0 as u64,
        }
    }

    /// Where whole blocks of elements are, or those that end the tensor, whose values start so.
    pub fn range(self, start: u64, elements: &Range<u64>) -> Range<u64> {
        let (first, block_bytes) = match self {
            Self::F32 => (start, 4),
            Self::F16 | Self::Bf16 => (start, 2),
            Self::Block(block) => (start, block.bytes()),
            Self::AprQ4 => (start, APR_Q4.1 as u64),
            Self::AprQ8 if elements.end == 0 => (start, 1),
            Self::AprQ8 => (start + APR_Q8_SCALE_BYTES, 1),
        };
        let at = |element: u64| first + element.div_ceil(self.len()) * block_bytes;
        at(elements.start)..at(elements.end)
    }

    /// The values of whole blocks, or of those that end the tensor, on all threads. `out` has room for exactly as many. `scale`
    /// is that of the tensor, if it has one.
    pub fn dequantize(self, scale: f32, bytes: &[u8], out: &mut [f32]) {
        match self {
            Self::F32 => widen(bytes, out, f32::from_le_bytes),
            Self::F16 => widen(bytes, out, |element| f16::from_le_bytes(element).to_f32()),
            Self::Bf16 => widen(bytes, out, |element| bf16::from_le_bytes(element).to_f32()),
            Self::Block(block) => dequantize(block, bytes, out),
            Self::AprQ4 => {
                out.par_chunks_mut(APR_Q4.0).zip(bytes.par_chunks_exact(APR_Q4.1)).for_each(|(out, block)| {
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
