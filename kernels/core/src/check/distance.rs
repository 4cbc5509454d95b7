//! Measures the distance of an output from its reference.

use bytemuck::Pod;
use half::bf16;

use crate::dtype::Dtype;
use crate::format::Format;
use crate::operand::{Access, Content, Operand, Scalar};
use crate::reference::Tolerance;

/// A byte that no kernel writes: four of them are a NaN in f32, two in bf16.
pub const POISON: u8 = 0xFF;

/// Distance of an output from its reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distance {
    /// ‖out − ref‖ / ‖ref‖.
    pub norm: f64,
    /// Largest |out − ref|, as a share of the largest |ref|.
    pub element: f64,
    /// Index of the largest difference.
    pub index: usize,
}

impl Distance {
    /// The distance of equal outputs.
    pub const NONE: Self = Self { norm: 0.0, element: 0.0, index: 0 };
}

/// An output that differs from its reference.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: operand `{operand}` {fault}")]
pub struct Mismatch {
    /// Canonical text of the key.
    pub key: String,
    /// Name of the operand.
    pub operand: &'static str,
    /// Fault of its content.
    pub fault: OutputFault,
}

/// Fault of an output.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum OutputFault {
    /// It is beyond the tolerance.
    #[error(
        "differs from the host reference: ‖out − ref‖ / ‖ref‖ = {:.3e} (allowed {:.1e}), worst element {} by {:.3e} \
        of the \
         largest (allowed {:.1e})",
        distance.norm, tolerance.norm, distance.index, distance.element, tolerance.element
    )]
    Distance {
        /// Measured distance.
        distance: Distance,
        /// Allowed distance.
        tolerance: Tolerance,
    },
    /// Integers that have to be equal are not.
    #[error("has {found} at element {index}, and the host reference {expected}; {count} of {elems} differ")]
    Integers {
        /// First element that differs.
        index: usize,
        /// Element of the output.
        found: i64,
        /// Element of the reference.
        expected: i64,
        /// Elements that differ.
        count: usize,
        /// Elements of the operand.
        elems: u64,
    },
    /// The launch left poison where the reference writes.
    #[error("was never written at element {index} of {elems}")]
    Unwritten {
        /// First such element.
        index: usize,
        /// Elements of the operand.
        elems: u64,
    },
    /// Neither the launch nor the reference writes all of it.
    #[error(
        "is written at element {index} of {elems} neither by the launch nor by the host reference: it is declared \
        too long"
    )]
    ByNeither {
        /// First such element.
        index: usize,
        /// Elements of the operand.
        elems: u64,
    },
}

/// Finds the first differing word in a block of scalars, as which 0 and 1 are within any tolerance.
pub(super) fn unequal(operand: &Operand, out: &[u8], reference: &[u8]) -> Option<usize> {
    let Content::Scalars(fields) = operand.content else { return None };
    let mut both = fields.iter().zip(out.chunks(4).zip(reference.chunks(4)));
    both.position(|(field, (out, reference))| matches!(field, Scalar::Word(_) | Scalar::Below(_)) && out != reference)
}

/// Counts integers that differ.
pub(super) fn integers(operand: &Operand, out: &[u8], reference: &[u8]) -> Option<OutputFault> {
    let read = |bytes: &[u8], index: usize| match operand.format {
        Format::Dense(Dtype::U32) => Some(i64::from(bytemuck::pod_read_unaligned::<u32>(&bytes[4 * index..][..4]))),
        Format::Dense(Dtype::I8) => Some(i64::from(bytes[index] as i8)),
        _ => None,
    };
    if matches!(operand.content, Content::Scalars(_)) {
        return None;
    }
    let mut differ = (0..operand.elems as usize).filter(|index| read(out, *index) != read(reference, *index));
    let index = differ.next()?;
    let (found, expected) = (read(out, index)?, read(reference, index)?);
    Some(OutputFault::Integers { index, found, expected, count: 1 + differ.count(), elems: operand.elems })
}

/// Finds the first element of an output that still holds poison. In integers poison is an ordinary value.
pub(super) fn unwritten(operand: &Operand, out: &[u8], reference: &[u8]) -> Option<OutputFault> {
    let Format::Dense(dtype @ (Dtype::F32 | Dtype::Bf16)) = operand.format else { return None };
    if operand.access != Access::Write {
        return None;
    }
    let size = dtype.bytes() as usize;
    let is_poison = |element: &[u8]| element.iter().all(|byte| *byte == POISON);
    let mut both = out.chunks_exact(size).zip(reference.chunks_exact(size));
    let index = both.position(|(out, _)| is_poison(out))?;
    let elems = operand.elems;
    match is_poison(&reference[index * size..][..size]) {
        true => Some(OutputFault::ByNeither { index, elems }),
        false => Some(OutputFault::Unwritten { index, elems }),
    }
}

pub(super) fn distance(format: Format, out: &[u8], reference: &[u8], tolerance: Tolerance) -> Distance {
    assert_eq!(out.len(), reference.len());
    let (out, reference) = (floats(format, out), floats(format, reference));
    let mut result = Distance::NONE;
    let (mut square, mut reference_square, mut largest, mut worst) = (0.0, 0.0, 0.0f64, 0.0f64);
    for (index, (a, b)) in out.iter().zip(&reference).enumerate() {
        // NaN agrees with NaN; other non-finite values agree only if equal.
        let same = a == b && (tolerance != Tolerance::EXACT || a.is_sign_negative() == b.is_sign_negative());
        if a.is_nan() && b.is_nan() || same || (a - b).abs() <= tolerance.absolute && a != b {
            largest = if b.is_finite() { largest.max(b.abs()) } else { largest };
            reference_square += if b.is_finite() { b * b } else { 0.0 };
            continue;
        }
        let difference = (a - b).abs();
        // Zeros of different signs have no distance, but differ in bits.
        if !difference.is_finite() || difference == 0.0 {
            return Distance { norm: f64::INFINITY, element: f64::INFINITY, index };
        }
        square += difference * difference;
        reference_square += b * b;
        largest = largest.max(b.abs());
        if difference > worst {
            (worst, result.index) = (difference, index);
        }
    }
    let relative = |difference: f64, size: f64| if difference == 0.0 { 0.0 } else { difference / size };
    result.norm = relative(square.sqrt(), reference_square.sqrt());
    result.element = relative(worst, largest);
    result
}

/// Decodes elements; of blocks, which are only read, returns their bytes.
pub fn floats(format: Format, bytes: &[u8]) -> Vec<f64> {
    match format {
        Format::Dense(Dtype::F32) => elements::<f32>(bytes).map(f64::from).collect(),
        Format::Dense(Dtype::Bf16) => elements::<bf16>(bytes).map(f64::from).collect(),
        Format::Dense(Dtype::U32) => elements::<u32>(bytes).map(f64::from).collect(),
        Format::Dense(Dtype::I8) => elements::<i8>(bytes).map(f64::from).collect(),
        Format::Block(_) => elements::<u8>(bytes).map(f64::from).collect(),
    }
}

pub(super) fn elements<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        bytemuck::cast_slice(values).to_vec()
    }

    #[test]
    fn distance_sees_poison_left_behind() {
        let poisoned = f32::from_bits(0xFFFF_FFFF);
        let exact = Tolerance::EXACT;
        let far = distance(Format::Dense(Dtype::F32), &bytes(&[1.0, poisoned]), &bytes(&[1.0, 2.0]), exact);
        assert_eq!(far, Distance { norm: f64::INFINITY, element: f64::INFINITY, index: 1 });
        let same = distance(Format::Dense(Dtype::F32), &bytes(&[1.0, poisoned]), &bytes(&[1.0, poisoned]), exact);
        assert_eq!((same.norm, same.element), (0.0, 0.0));
    }

    #[test]
    fn integers_that_differ_are_counted() {
        let format = Format::Dense(Dtype::U32);
        let content = Content::of(format);
        let operand = Operand { name: "index", offset: 0, format, elems: 4, access: Access::Write, content };
        let words = |values: [u32; 4]| bytemuck::cast_slice::<u32, u8>(&values).to_vec();
        let found = integers(&operand, &words([7, 9, 2, u32::MAX]), &words([7, 1, 2, 3])).unwrap();
        assert_eq!(found.to_string(), "has 9 at element 1, and the host reference 1; 2 of 4 differ");
        assert_eq!(integers(&operand, &words([1; 4]), &words([1; 4])), None);
    }

    #[test]
    fn distance_is_relative_to_the_reference() {
        let distance = |out: &[f32], reference: &[f32], absolute| {
            let tolerance = Tolerance { absolute, ..Tolerance::of(Format::Dense(Dtype::F32)) };
            super::distance(Format::Dense(Dtype::F32), &bytes(out), &bytes(reference), tolerance)
        };
        let off = distance(&[3.0, 4.5], &[3.0, 4.0], 0.0);
        assert_eq!((off.norm, off.element, off.index), (0.1, 0.125, 1));
        let from_zero = distance(&[1.0], &[0.0], 0.0);
        assert_eq!(from_zero.norm, f64::INFINITY);
        let within = distance(&[1e-7], &[0.0], 1e-6);
        assert_eq!(within.norm, 0.0);
    }

    #[test]
    fn zeros_of_two_signs_differ_where_a_kernel_is_exact() {
        let distance =
            |tolerance| distance(Format::Dense(Dtype::F32), &bytes(&[1.0, -0.0]), &bytes(&[1.0, 0.0]), tolerance).norm;
        assert_eq!(distance(Tolerance::EXACT), f64::INFINITY);
        assert_eq!(distance(Tolerance::of(Format::Dense(Dtype::F32))), 0.0);
    }
}
