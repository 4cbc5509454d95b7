//! Storage formats of tensors, the only source of sizes in bytes.

use std::fmt;

use crate::dtype::Dtype;

/// Storage format of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Elements of one dtype.
    Dense(Dtype),
    /// Blocks that share scales, as ggml packs them.
    Block(Block),
}

/// The block formats of ggml (`ggml-common.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(non_camel_case_types)] // ggml's own names
pub enum Block {
    /// A scale and 32 numbers of 4 bits.
    Q4_0,
    /// A scale, a minimum and 32 numbers of 4 bits.
    Q4_1,
    /// A scale and 32 numbers of 5 bits.
    Q5_0,
    /// A scale, a minimum and 32 numbers of 5 bits.
    Q5_1,
    /// A scale and 32 numbers of 8 bits.
    Q8_0,
    /// 256 numbers of 4 bits, scales and minimums for each 32.
    Q4_K,
    /// 256 numbers of 5 bits, scales and minimums for each 32.
    Q5_K,
    /// 256 numbers of 6 bits, scales for each 16.
    Q6_K,
}

impl Block {
    /// Every block format.
    pub const ALL: [Self; 8] =
        [Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Q8_0, Self::Q4_K, Self::Q5_K, Self::Q6_K];

    /// Returns the elements of a block.
    pub const fn elems(self) -> u64 {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
        }
    }

    /// Returns the size of a block, bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4_K => 144,
            Self::Q5_K => 176,
            Self::Q6_K => 210,
        }
    }

    /// Returns the offsets of a block's half-precision numbers, bytes: its scale, and its minimum if it has one.
    pub const fn halves(self) -> &'static [usize] {
        match self {
            Self::Q4_0 | Self::Q5_0 | Self::Q8_0 => &[0],
            Self::Q4_1 | Self::Q5_1 | Self::Q4_K | Self::Q5_K => &[0, 2],
            Self::Q6_K => &[208],
        }
    }

    /// Returns the alignment of a block, bytes: the largest vector size that divides its own.
    pub const fn align(self) -> u64 {
        let power_of_two = 1 << self.bytes().trailing_zeros();
        if power_of_two < 16 { power_of_two } else { 16 }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names equal those of the variants.
        write!(f, "{self:?}")
    }
}

impl Format {
    /// Returns the bytes of `elems` elements.
    ///
    /// # Panics
    /// If they are not whole blocks.
    pub fn bytes(self, elems: u64) -> u64 {
        match self {
            Format::Dense(dtype) => elems * dtype.bytes(),
            Format::Block(block) => {
                assert!(self.fits(elems), "{elems} elements are no whole blocks of {block}");
                elems / block.elems() * block.bytes()
            }
        }
    }

    /// True if `elems` elements are whole blocks.
    pub fn fits(self, elems: u64) -> bool {
        match self {
            Format::Dense(_) => true,
            Format::Block(block) => elems.is_multiple_of(block.elems()),
        }
    }

    /// Returns the alignment of a tensor, bytes.
    pub fn align(self) -> u64 {
        match self {
            Format::Dense(dtype) => dtype.bytes(),
            Format::Block(block) => block.align(),
        }
    }

    /// Returns the dtype of dense elements.
    pub fn dtype(self) -> Option<Dtype> {
        match self {
            Format::Dense(dtype) => Some(dtype),
            Format::Block(_) => None,
        }
    }
}

impl Format {
    /// Returns the format of outputs, biases and residuals of matrix multiplications with inputs in this one.
    pub fn output(self) -> Self {
        if self == Dtype::I8 { Dtype::Bf16.into() } else { self }
    }
}

impl From<Block> for Format {
    fn from(block: Block) -> Self {
        Format::Block(block)
    }
}

impl From<Dtype> for Format {
    fn from(dtype: Dtype) -> Self {
        Format::Dense(dtype)
    }
}

impl PartialEq<Dtype> for Format {
    fn eq(&self, dtype: &Dtype) -> bool {
        *self == Format::Dense(*dtype)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::Dense(dtype) => dtype.fmt(f),
            Format::Block(block) => block.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_format() {
        assert_eq!(Format::Dense(Dtype::Bf16).bytes(512), 1024);
        assert_eq!(Format::Dense(Dtype::F32).bytes(512), 2048);
        assert_eq!(Format::Block(Block::Q4_K).bytes(512), 288);
        assert_eq!(Format::Block(Block::Q8_0).bytes(512), 544);
    }

    #[test]
    fn blocks_lie_on_what_divides_their_size() {
        let align = Block::ALL.map(|block| (block.to_string(), Format::Block(block).align()));
        let expected = [2, 4, 2, 8, 2, 16, 16, 2];
        assert_eq!(align.map(|(_, bytes)| bytes), expected);
        assert!(Block::ALL.iter().all(|block| block.bytes().is_multiple_of(block.align())));
    }

    #[test]
    #[should_panic(expected = "no whole blocks of Q6_K")]
    fn a_part_of_a_block_has_no_size() {
        Format::Block(Block::Q6_K).bytes(128);
    }
}
