//! The block formats of ggml: how many values a block packs into how many bytes, and their `f32` values.
//!
//! Every product and sum is one `f32` operation, in the order of ggml's reference (`dequantize_row_*`), so that
//! the values are the same bits. Layouts are those of ggml's `ggml-common.h`.

use half::f16;
use precast_kernels::Block;
use rayon::prelude::*;

use super::kquants;

/// Blocks that one task of the thread pool expands.
const BLOCKS_A_TASK: usize = 4096;

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
    /// Every one.
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
    fn block(self) -> Option<Block> {
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

    /// The values of whole blocks, on all threads. `out` has room for exactly as many.
    pub(super) fn dequantize(self, blocks: &[u8], out: &mut [f32]) {
        let tasks = blocks.par_chunks(self.bytes() * BLOCKS_A_TASK);
        tasks.zip(out.par_chunks_mut(self.len() * BLOCKS_A_TASK)).for_each(|(blocks, out)| match self {
            Self::F32 => expand(blocks, out, |block, out: &mut [f32; 1]| *out = [f32::from_le_bytes(*block)]),
            Self::F16 => expand(blocks, out, |block, out: &mut [f32; 1]| *out = [f16::from_le_bytes(*block).to_f32()]),
            Self::Bf16 => expand(blocks, out, |&[low, high], out: &mut [f32; 1]| {
                *out = [f32::from_le_bytes([0, 0, low, high])];
            }),
            Self::Q4_0 => expand(blocks, out, q4_0),
            Self::Q4_1 => expand(blocks, out, q4_1),
            Self::Q5_0 => expand(blocks, out, q5_0),
            Self::Q5_1 => expand(blocks, out, q5_1),
            Self::Q8_0 => expand(blocks, out, q8_0),
            Self::Q4K => expand(blocks, out, kquants::q4_k),
            Self::Q5K => expand(blocks, out, kquants::q5_k),
            Self::Q6K => expand(blocks, out, kquants::q6_k),
        });
    }
}

/// Expands block by block.
fn expand<const BYTES: usize, const LEN: usize>(
    blocks: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; BYTES], &mut [f32; LEN]),
) {
    let blocks = blocks.as_chunks().0;
    blocks.iter().zip(out.as_chunks_mut().0).for_each(|(bytes, out)| block(bytes, out));
}

/// The half-precision number at a byte.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The two 4-bit numbers of a byte: the low one belongs to the first half of a block.
fn nibbles(byte: u8) -> [u8; 2] {
    [byte & 0xF, byte >> 4]
}

/// Scale, then 32 numbers of 4 bits around 8.
fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (i, &byte) in block[2..].iter().enumerate() {
        let [low, high] = nibbles(byte).map(|q| f32::from(q as i8 - 8) * scale);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// Scale, minimum, then 32 numbers of 4 bits.
fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    for (i, &byte) in block[4..].iter().enumerate() {
        let [low, high] = nibbles(byte).map(|q| f32::from(q) * scale + min);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// The 5-bit numbers `i` and `i + 16`: a nibble each, and a bit each of four bytes.
fn five_bits(high_bits: &[u8; 4], byte: u8, i: usize) -> [u8; 2] {
    let high_bits = u32::from_le_bytes(*high_bits);
    let [low, high] = nibbles(byte);
    [low | ((high_bits >> i) as u8 & 1) << 4, high | ((high_bits >> (i + 16)) as u8 & 1) << 4]
}

/// Scale, fifth bits, then 32 numbers of 5 bits around 16.
fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (scale, high_bits) = (half_at(block, 0), [block[2], block[3], block[4], block[5]]);
    for (i, &byte) in block[6..].iter().enumerate() {
        let [low, high] = five_bits(&high_bits, byte, i).map(|q| f32::from(q as i8 - 16) * scale);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// Scale, minimum, fifth bits, then 32 numbers of 5 bits.
fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    let high_bits = [block[4], block[5], block[6], block[7]];
    for (i, &byte) in block[8..].iter().enumerate() {
        let [low, high] = five_bits(&high_bits, byte, i).map(|q| f32::from(q) * scale + min);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// Scale, then 32 numbers of 8 bits.
fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (out, &byte) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(byte as i8) * scale;
    }
}
