//! Checks launches: fresh random inputs, poisoned outputs, and the distance from the host reference.

use bytemuck::Pod;
use half::bf16;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64Mcg;

use crate::dtype::Dtype;
use crate::format::{Block, Format};
use crate::host::{Buffer, Views};
use crate::key::Key;
use crate::operand::{Access, Content, Operand, Scalar};
use crate::reference::Tolerance;

/// A byte that no kernel writes: four of them are a NaN in f32, two in bf16.
pub const POISON: u8 = 0xFF;

/// Marks an id or a slot that is none.
const ABSENT: u32 = u32::MAX;

/// A launch to check: a key, a parameter block with addresses 0, and the contents of its operands.
pub struct Case {
    /// Kernel that is launched.
    pub key: Key,
    /// Parameter block, addresses 0.
    pub params: Vec<u8>,
    /// Operands of the launch, in the order of the block.
    pub operands: Vec<Operand>,
    /// Contents of each operand before the launch.
    pub before: Vec<Buffer>,
}

impl Case {
    /// Fills every operand that is read with random content, every other one with poison.
    pub fn new(key: &Key, params: &[u8], seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let operands = key.kernel().operands(params);
        let mut before: Vec<Buffer> = Vec::new();
        for operand in &operands {
            let content = match (operand.access, operand.content) {
                (Access::Write | Access::Scratch, _) => vec![POISON; operand.bytes() as usize],
                (_, Content::PositionsOf(name)) => {
                    let ids = operands.iter().position(|other| other.name == name);
                    let ids = ids.expect("positions come after the ids they belong to");
                    positions(&before[ids], &mut rng)
                }
                (_, content) => random(operand, content, &mut rng),
            };
            before.push(Buffer::from(&content[..]));
        }
        Self { key: key.clone(), params: params.to_vec(), operands, before }
    }

    /// Returns each operand's contents after the launch, by the host reference.
    pub fn reference(&self) -> Vec<Buffer> {
        let mut after = self.before.clone();
        let mut views = Views::new();
        for (operand, bytes) in self.operands.iter().zip(&mut after) {
            if operand.access.writes() {
                views.push_write(operand, bytes);
            } else {
                views.push_read(operand, bytes);
            }
        }
        self.key.kernel().host(&self.params, &mut views);
        drop(views);
        after
    }

    /// Compares an operand after a launch with the reference. Scratch operands may hold anything.
    ///
    /// # Errors
    /// [`Mismatch`] if an element was not written, is beyond the kernel's tolerance, or is finite while the reference
    /// is not, or vice versa.
    pub fn compare(&self, operand: &Operand, out: &[u8], reference: &[u8]) -> Result<Distance, Mismatch> {
        self.compare_within(self.key.kernel().tolerance(operand), operand, out, reference)
    }

    /// Like [`Self::compare`], within another tolerance than the kernel's own.
    ///
    /// # Errors
    /// Those of [`Self::compare`].
    pub fn compare_within(
        &self,
        tolerance: Tolerance,
        operand: &Operand,
        out: &[u8],
        reference: &[u8],
    ) -> Result<Distance, Mismatch> {
        if operand.access == Access::Scratch {
            return Ok(Distance::NONE);
        }
        let fault = |fault| Mismatch { key: self.key.to_string(), operand: operand.name, fault };
        if let Some(unwritten) = unwritten(operand, out, reference) {
            return Err(fault(unwritten));
        }
        if let Some(integers) = integers(operand, out, reference).filter(|_| tolerance == Tolerance::EXACT) {
            return Err(fault(integers));
        }
        let distance = match unequal(operand, out, reference) {
            Some(index) => Distance { norm: f64::INFINITY, element: f64::INFINITY, index },
            None => distance(operand.format, out, reference, tolerance),
        };
        if distance.norm <= tolerance.norm && distance.element <= tolerance.element {
            Ok(distance)
        } else {
            Err(fault(OutputFault::Distance { distance, tolerance }))
        }
    }
}

/// Finds the first differing word in a block of scalars, as which 0 and 1 are within any tolerance.
fn unequal(operand: &Operand, out: &[u8], reference: &[u8]) -> Option<usize> {
    let Content::Scalars(fields) = operand.content else { return None };
    let mut both = fields.iter().zip(out.chunks(4).zip(reference.chunks(4)));
    both.position(|(field, (out, reference))| matches!(field, Scalar::Word(_) | Scalar::Below(_)) && out != reference)
}

/// Counts integers that differ.
fn integers(operand: &Operand, out: &[u8], reference: &[u8]) -> Option<OutputFault> {
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
fn unwritten(operand: &Operand, out: &[u8], reference: &[u8]) -> Option<OutputFault> {
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
        "differs from the host reference: ‖out − ref‖ / ‖ref‖ = {:.3e} (allowed {:.1e}), worst element {} by {:.3e} of the \
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
        "is written at element {index} of {elems} neither by the launch nor by the host reference: it is declared too long"
    )]
    ByNeither {
        /// First such element.
        index: usize,
        /// Elements of the operand.
        elems: u64,
    },
}

fn distance(format: Format, out: &[u8], reference: &[u8], tolerance: Tolerance) -> Distance {
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
fn floats(format: Format, bytes: &[u8]) -> Vec<f64> {
    match format {
        Format::Dense(Dtype::F32) => elements::<f32>(bytes).map(f64::from).collect(),
        Format::Dense(Dtype::Bf16) => elements::<bf16>(bytes).map(f64::from).collect(),
        Format::Dense(Dtype::U32) => elements::<u32>(bytes).map(f64::from).collect(),
        Format::Dense(Dtype::I8) => elements::<i8>(bytes).map(f64::from).collect(),
        Format::Block(_) => elements::<u8>(bytes).map(f64::from).collect(),
    }
}

fn elements<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

fn random(operand: &Operand, content: Content, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let count = operand.elems as usize;
    let words = |values: Vec<u32>| bytemuck::cast_slice(&values).to_vec();
    match content {
        Content::Zeros => vec![0; operand.bytes() as usize],
        Content::Blocks => match operand.format {
            Format::Block(block) => blocks(block, operand.bytes() as usize, rng),
            Format::Dense(dtype) => panic!("operands of {dtype} are no blocks"),
        },
        Content::Normal(factor) => store(operand.format, count, || factor * rng.sample::<f32, _>(StandardNormal)),
        Content::Uniform(low, high) => store(operand.format, count, || rng.random_range(low..high)),
        Content::Int8 => int8(count, rng),
        Content::Rows(columns) => rows(operand.format, count, columns, rng),
        Content::Logits(vocab) => logits(operand.format, count, vocab, rng),
        Content::Distinct(row, bound) => words(distinct(count, (row, bound), rng)),
        Content::LogProbs(row) => log_probs(count, row, rng),
        Content::Few => store(operand.format, count, || few(rng)),
        Content::Columns(columns) => self::columns(operand.format, count, columns, rng),
        Content::Ids(bound) => words((0..count).map(|_| rng.random_range(0..bound)).collect()),
        Content::Targets(bound) => {
            let mut target = || if rng.random_range(0..4) == 0 { ABSENT } else { rng.random_range(0..bound) };
            words((0..count).map(|_| target()).collect())
        }
        Content::Slots(bound) => words(slots(bound, count, rng)),
        Content::SortedIds(bound) => {
            let mut ids: Vec<u32> = (0..count).map(|_| rng.random_range(0..bound)).collect();
            ids.sort_unstable();
            words(ids)
        }
        Content::PositionsOf(_) => unreachable!("handled where the ids are at hand"),
        Content::Scalars(fields) => fields.iter().flat_map(|field| scalar(*field, rng)).collect(),
    }
}

fn scalar(field: Scalar, rng: &mut Pcg64Mcg) -> [u8; 4] {
    match field {
        Scalar::Float(value) => value.to_le_bytes(),
        Scalar::Uniform(low, high) => rng.random_range(low..high).to_le_bytes(),
        Scalar::Word(value) => value.to_le_bytes(),
        Scalar::Below(bound) => rng.random_range(0..bound).to_le_bytes(),
    }
}

/// Period of random values, a prime: generating all of a benchmark's would take longer than its launch.
const PERIOD: usize = 4_194_301;

fn store(format: Format, count: usize, mut value: impl FnMut() -> f32) -> Vec<u8> {
    let drawn = 0..count.min(PERIOD);
    let bytes: Vec<u8> = match format {
        Format::Dense(Dtype::F32) => drawn.flat_map(|_| value().to_le_bytes()).collect(),
        Format::Dense(Dtype::Bf16) => drawn.flat_map(|_| bf16::from_f32(value()).to_le_bytes()).collect(),
        other => panic!("operands of {other} name their content"),
    };
    repeated(bytes, format.bytes(count as u64) as usize)
}

/// Repeats these bytes up to `all`.
fn repeated(mut bytes: Vec<u8>, all: usize) -> Vec<u8> {
    let drawn = bytes.len();
    while bytes.len() < all {
        let more = (all - bytes.len()).min(drawn);
        bytes.extend_from_within(..more);
    }
    bytes
}

/// Draws integers, an eighth of them extreme.
fn int8(count: usize, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut value = || match rng.random_range(0..16) {
        0 => 127,
        1 => -127,
        _ => rng.random_range(-127..=127i8),
    };
    repeated((0..count.min(PERIOD)).map(|_| value() as u8).collect(), count)
}

/// Content of a row or column: its kind, and the index of the outlier if it has one.
struct Line {
    kind: u32,
    outlier: u32,
}

impl Line {
    fn new(elements: u32, rng: &mut Pcg64Mcg) -> Self {
        Self { kind: rng.random_range(0..8), outlier: rng.random_range(0..elements) }
    }

    fn element(&self, index: u32, rng: &mut Pcg64Mcg) -> f32 {
        let normal: f32 = rng.sample(StandardNormal);
        match self.kind {
            0 => 0.0,
            1 if index == self.outlier => 1000.0,
            2 => bf16::MAX.to_f32().copysign(normal),
            3 => normal * 1e-38,
            _ => normal,
        }
    }
}

/// Draws [`Content::Rows`].
fn rows(format: Format, count: usize, columns: u32, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let (mut row, mut column) = (Line::new(columns, rng), 0);
    store(format, count, || {
        if column == columns {
            (row, column) = (Line::new(columns, rng), 0);
        }
        column += 1;
        row.element(column - 1, rng)
    })
}

/// Draws [`Content::Logits`].
fn logits(format: Format, count: usize, vocab: u32, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let (mut id, mut has_ties, mut fault) = (vocab, false, None);
    store(format, count, || {
        if id == vocab {
            (id, has_ties) = (0, rng.random());
            fault = (rng.random_range(0..8) == 0).then(|| rng.random_range(0..vocab));
        }
        id += 1;
        let logit = 4.0 * rng.sample::<f32, _>(StandardNormal);
        match fault {
            Some(fault) if fault + 1 == id => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][rng.random_range(0..3)],
            _ if has_ties => logit.round(),
            _ => logit,
        }
    })
}

/// Draws [`Content::Distinct`].
fn distinct(count: usize, (row, bound): (u32, u32), rng: &mut Pcg64Mcg) -> Vec<u32> {
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count / row as usize {
        // One of each of so many equal parts.
        let end = |part: u32| (u64::from(bound) * u64::from(part) / u64::from(row)) as u32;
        ids.extend(shuffled(row, rng).into_iter().map(|part| rng.random_range(end(part)..end(part + 1))));
    }
    ids
}

/// Draws [`Content::LogProbs`].
fn log_probs(count: usize, row: u32, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut drawn = Vec::with_capacity(count);
    for _ in 0..count / row as usize {
        // Of a flat row and of a sharp one.
        let factor = if rng.random() { 1.0 } else { 40.0 };
        let logits: Vec<f64> = (0..row).map(|_| factor * rng.sample::<f64, _>(StandardNormal)).collect();
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total = largest + logits.iter().map(|logit| (logit - largest).exp()).sum::<f64>().ln();
        drawn.extend(logits.iter().flat_map(|logit| ((logit - total) as f32).to_le_bytes()));
    }
    drawn
}

/// Draws a value of [`Content::Few`].
fn few(rng: &mut Pcg64Mcg) -> f32 {
    match rng.random_range(0..8) {
        0 => 0.0,
        1 => -0.0,
        2 => f32::NAN,
        3 => -f32::NAN,
        _ => 1.0,
    }
}

/// Draws [`Content::Columns`].
fn columns(format: Format, count: usize, columns: u32, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let rows = count as u32 / columns;
    let lines: Vec<Line> = (0..columns).map(|_| Line::new(rows, rng)).collect();
    let mut places = (0..rows).flat_map(|row| lines.iter().map(move |line| (row, line)));
    store(format, count, || places.next().map_or(0.0, |(row, line)| line.element(row, rng)))
}

/// Draws blocks of random numbers with finite scales: most of the magnitude of weights, some subnormal, some zero, of
/// both signs.
fn blocks(block: Block, bytes: usize, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut all = vec![0; bytes];
    rng.fill(&mut all[..]);
    for one in all.chunks_exact_mut(block.bytes() as usize) {
        for at in block.halves() {
            let magnitude = match rng.random_range(0..16) {
                0 => 0,
                1 | 2 => rng.random_range(1..0x0400), // subnormal
                3 => rng.random_range(0x0400..0x7C00),
                _ => rng.random_range(0x1000..0x3C00), // 2^-11 to 1
            };
            let half: u16 = magnitude | rng.random_range(0..2u16) << 15;
            one[*at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
    }
    all
}

/// Returns the numbers below `count` in random order.
fn shuffled(count: u32, rng: &mut Pcg64Mcg) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).collect();
    for last in (1..all.len()).rev() {
        all.swap(last, rng.random_range(0..=last));
    }
    all
}

/// Draws [`Content::Slots`]: those that there are no more slots for are idle, too.
fn slots(bound: u32, count: usize, rng: &mut Pcg64Mcg) -> Vec<u32> {
    let slots = shuffled(bound, rng).into_iter().chain(std::iter::repeat(ABSENT)).take(count);
    slots.map(|slot| if rng.random_range(0..4) == 0 { ABSENT } else { slot }).collect()
}

/// Draws a random assignment of rows to sorted ids, ascending within a run of equal ids.
fn positions(ids: &[u8], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let ids: Vec<u32> = elements(ids).collect();
    let mut rows = shuffled(ids.len() as u32, rng);
    let mut start = 0;
    for run in ids.chunk_by(|a, b| a == b) {
        rows[start..start + run.len()].sort_unstable();
        start += run.len();
    }
    bytemuck::cast_slice(&rows).to_vec()
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
