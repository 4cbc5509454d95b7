//! Lists of numbers as their bytes, little-endian and at any alignment.

use crate::Dtype;

/// True if each of the whole elements in `bytes` is finite, as all integers are.
///
/// A number is not finite where all bits of its exponent are set. Adding one to the exponent of such a number, and of
/// no other, carries into the sign bit: an addition and two bit operations an element, which compile to vector
/// instructions.
pub fn all_finite(bytes: &[u8], dtype: Dtype) -> bool {
    match dtype {
        Dtype::F32 => {
            let carry = |element: &[u8; 4]| (u32::from_le_bytes(*element) & 0x7F80_0000) + 0x0080_0000;
            bytes.as_chunks().0.iter().fold(0, |any, element| any | carry(element)) >> 31 == 0
        }
        Dtype::Bf16 => {
            let carry = |element: &[u8; 2]| (u16::from_le_bytes(*element) & 0x7F80) + 0x0080;
            bytes.as_chunks().0.iter().fold(0, |any, element| any | carry(element)) >> 15 == 0
        }
        Dtype::U32 | Dtype::I8 => true,
    }
}

/// Returns the largest difference of two lists of f32 or bf16, element by element.
pub fn farthest(one: &[u8], other: &[u8], dtype: Dtype) -> f32 {
    fn of<const N: usize>(one: &[u8], other: &[u8], value: impl Fn(&[u8; N]) -> f32) -> f32 {
        let pairs = one.as_chunks().0.iter().zip(other.as_chunks().0);
        pairs.map(|(one, other)| (value(other) - value(one)).abs()).fold(0.0, f32::max)
    }
    if dtype == Dtype::Bf16 {
        of(one, other, |[low, high]| f32::from_le_bytes([0, 0, *low, *high]))
    } else {
        of(one, other, |bytes| f32::from_le_bytes(*bytes))
    }
}
