//! Weights that are not numbers, found where weights are read or written.

use half::{bf16, f16};
use precast_core::host::numbers::all_finite;
use precast_kernels::dequant::dequantize;
use precast_kernels::{Block, Dtype, Format};
use rayon::prelude::*;

use super::kind::Kind;

/// A weight that is NaN or infinite.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("tensor {tensor} is {value} at element {index} (as {dtype})")]
pub struct NotFinite {
    /// Its Hugging Face name.
    pub tensor: String,
    /// The first such element, in row-major order, from 0.
    pub index: usize,
    /// What it is.
    pub value: f32,
    /// As what it is read or written: a number may be too large for that.
    pub dtype: &'static str,
}

/// Refuses a tensor with an element that is NaN or infinite.
pub(super) fn check(tensor: &str, bytes: &[u8], format: Format) -> Result<(), NotFinite> {
    match format {
        Format::Dense(dtype) => refuse(tensor, dtype.name(), first_not_finite(bytes, dtype)),
        Format::Block(block) => refuse(tensor, Dtype::F32.name(), first_not_finite_of_blocks(bytes, block)),
    }
}

/// Refuses a tensor with an element that is NaN or infinite, as a file stores it.
pub(super) fn check_stored(tensor: &str, bytes: &[u8], kind: Kind) -> Result<(), NotFinite> {
    match kind {
        Kind::Bf16 => check(tensor, bytes, Format::Dense(Dtype::Bf16)),
        Kind::Block(block) => check(tensor, bytes, Format::Block(block)),
        Kind::F16 => {
            let mut values = bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).enumerate();
            refuse(tensor, "f16", values.find(|(_, value)| !value.is_finite()))
        }
        _ => check(tensor, bytes, Format::Dense(Dtype::F32)),
    }
}

fn refuse(tensor: &str, dtype: &'static str, found: Option<(usize, f32)>) -> Result<(), NotFinite> {
    found.map_or(Ok(()), |(index, value)| Err(NotFinite { tensor: tensor.to_owned(), index, value, dtype }))
}

/// The first element of blocks that is NaN or infinite: of one whose scales are, and no other, since what they multiply
/// are integers too small to leave the range of any dtype.
fn first_not_finite_of_blocks(bytes: &[u8], block: Block) -> Option<(usize, f32)> {
    let block_bytes = block.bytes() as usize;
    let half = |one: &[u8], at: usize| u16::from_le_bytes([one[at], one[at + 1]]);
    let is_finite = |one: &[u8]| block.halves().iter().all(|at| half(one, *at) & 0x7C00 != 0x7C00);
    let task = TASK_BYTES / block_bytes;
    let first = bytes.par_chunks(task * block_bytes).enumerate().find_map_first(|(index, blocks)| {
        let at = blocks.chunks_exact(block_bytes).position(|one| !is_finite(one))?;
        Some(index * task + at)
    })?;
    let mut values = vec![0.0; block.elems() as usize];
    dequantize(block, &bytes[first * block_bytes..][..block_bytes], &mut values);
    let found = values.iter().enumerate().find(|(_, value)| !value.is_finite());
    let (at, value) = found.expect("no product with a scale that is not finite is");
    Some((first * values.len() + at, *value))
}

/// Bytes that one task looks at: more are spread over threads.
const TASK_BYTES: usize = if cfg!(test) { 64 << 10 } else { 1 << 20 };

/// The first element of `bytes` that is NaN or infinite: its index, and what it is. `bytes` holds whole elements of
/// `dtype`, little-endian, at any alignment; integers are always finite.
fn first_not_finite(bytes: &[u8], dtype: Dtype) -> Option<(usize, f32)> {
    let value = |element: &[u8]| match *element {
        [a, b] => bf16::from_le_bytes([a, b]).to_f32(),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => unreachable!("elements have 2 or 4 bytes"),
    };
    let task = bytes.par_chunks(TASK_BYTES).position_first(|task| !all_finite(task, dtype))?;
    let element_bytes = dtype.bytes() as usize;
    let values = bytes[task * TASK_BYTES..].chunks_exact(element_bytes).map(value);
    let (index, value) = values.enumerate().find(|(_, value)| !value.is_finite())?;
    Some((task * TASK_BYTES / element_bytes + index, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` finite elements, extremes among them, with `bits` at `at`.
    fn elements(dtype: Dtype, count: usize, at: usize, bits: u32) -> Vec<u8> {
        let finite = [0u32, 0x8000_0000, 0x3F80_0000, 0x7F7F_FFFF, 0xFF7F_FFFF, 0x0000_0001, 0x8080_0000];
        let element = |index: usize| if index == at { bits } else { finite[index % finite.len()] };
        (0..count)
            .flat_map(|index| {
                let bytes = element(index).to_le_bytes();
                if dtype == Dtype::F32 { bytes.to_vec() } else { bytes[2..].to_vec() }
            })
            .collect()
    }

    #[test]
    fn the_first_element_that_is_not_finite_is_found_wherever_it_is() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let per_task = TASK_BYTES / dtype.bytes() as usize;
            let count = 2 * per_task + 37;
            for bits in [0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFFF_0000] {
                for at in [0, 1, 36, per_task - 1, per_task, count - 1] {
                    let (index, value) = first_not_finite(&elements(dtype, count, at, bits), dtype).unwrap();
                    assert_eq!((index, value.to_bits()), (at, bits), "{dtype:?}");
                }
            }
            let mut two = elements(dtype, count, per_task + 5, 0x7F80_0000);
            let later = elements(dtype, count, per_task + 3, 0x7F80_0000);
            let from = (per_task + 3) * dtype.bytes() as usize;
            two[from..from + 4].copy_from_slice(&later[from..from + 4]);
            assert_eq!(first_not_finite(&two, dtype).map(|(index, _)| index), Some(per_task + 3));
        }
    }

    #[test]
    fn a_block_is_finite_where_its_scales_are() {
        for block in Block::ALL {
            let (bytes, elems) = (block.bytes() as usize, block.elems() as usize);
            let count = 2 * TASK_BYTES / bytes + 5;
            let whole = vec![0x11u8; count * bytes];
            assert_eq!(check("w", &whole, Format::Block(block)), Ok(()));
            for half in block.halves() {
                for at in [0, 7, TASK_BYTES / bytes, count - 1] {
                    for bits in [0x7C00u16, 0xFC00, 0x7E00] {
                        let mut damaged = whole.clone();
                        damaged[at * bytes + half..][..2].copy_from_slice(&bits.to_le_bytes());
                        let found = check("w", &damaged, Format::Block(block)).unwrap_err();
                        let mut values = vec![0.0; count * elems];
                        dequantize(block, &damaged, &mut values);
                        let dense = check("w", bytemuck::cast_slice(&values), Format::Dense(Dtype::F32)).unwrap_err();
                        assert_eq!(
                            (found.index, found.value.to_bits()),
                            (dense.index, dense.value.to_bits()),
                            "{block}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn finite_elements_pass_at_any_alignment() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::U32] {
            for start in 0..4 {
                let mut bytes = vec![0xFF; start];
                bytes.extend(elements(dtype, 1000, usize::MAX, 0));
                assert_eq!(first_not_finite(&bytes[start..], dtype), None);
            }
        }
        assert_eq!(first_not_finite(&[], Dtype::F32), None);
    }
}
