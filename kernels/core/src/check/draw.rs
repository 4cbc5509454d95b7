//! Random contents of operands.

use half::bf16;
use rand::RngExt;
use rand_distr::StandardNormal;
use rand_pcg::Pcg64Mcg;

use super::distance::elements;
use crate::dtype::Dtype;
use crate::format::{Block, Format};
use crate::operand::{Content, Operand, Scalar};
use crate::sequences;

/// Marks an id or a slot that is none.
const ABSENT: u32 = u32::MAX;

/// Period of random values, a prime: generating all of a benchmark's would take longer than its launch.
const PERIOD: usize = 4_194_301;

pub(super) fn random(operand: &Operand, content: Content, rng: &mut Pcg64Mcg) -> Vec<u8> {
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
        Content::Runs(bound, most) => words(runs((bound, most), count, rng)),
        Content::Permutation => words(shuffled(count as u32, rng)),
        Content::ExpertTiles(rows, experts, most) => words(expert_tiles(rows, experts as u32, most, count, rng)),
        Content::Sequences(places, most) => words(sequences(&lengths(places, (count / 2, most), rng), count / 2)),
        Content::SortedIds(bound) => {
            let mut ids: Vec<u32> = (0..count).map(|_| rng.random_range(0..bound)).collect();
            ids.sort_unstable();
            words(ids)
        }
        Content::PositionsOf(_) | Content::Steps(..) => unreachable!("handled where the ids are at hand"),
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

/// Returns how many tokens a row of so many lacks, by its number: none at first.
fn lacks(number: usize, row: u32) -> usize {
    number * 7 % row.max(1) as usize
}

/// Draws [`Content::Distinct`].
fn distinct(count: usize, (row, bound): (u32, u32), rng: &mut Pcg64Mcg) -> Vec<u32> {
    let mut ids = Vec::with_capacity(count);
    for number in 0..count / row as usize {
        // One of each of so many equal parts.
        let end = |part: u32| (u64::from(bound) * u64::from(part) / u64::from(row)) as u32;
        ids.extend(shuffled(row, rng).into_iter().map(|part| rng.random_range(end(part)..end(part + 1))));
        let behind = ids.len() - lacks(number, row)..;
        ids[behind].fill(u32::MAX);
    }
    ids
}

/// Draws [`Content::LogProbs`].
fn log_probs(count: usize, row: u32, rng: &mut Pcg64Mcg) -> Vec<u8> {
    let mut drawn = Vec::with_capacity(count);
    for number in 0..count / row as usize {
        // Of a flat row and of a sharp one.
        let factor = if rng.random() { 1.0 } else { 40.0 };
        let mut logits: Vec<f64> = (0..row).map(|_| factor * rng.sample::<f64, _>(StandardNormal)).collect();
        let rest = row as usize - 1;
        logits[rest - lacks(number, row - 1)..rest].fill(-1e9);
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

/// Draws [`Content::ExpertTiles`]: half of the experts have none or few rows, and the last one has those that are left.
/// One of four lists leaves out up to a quarter of the rows at each end, which are other lists'.
fn expert_tiles(rows: u32, experts: u32, most: u32, count: usize, rng: &mut Pcg64Mcg) -> Vec<u32> {
    let (mut tiles, mut first, mut last) = (vec![0; 4], 0, rows);
    if rng.random_range(0..4) == 0 {
        first = rng.random_range(0..=rows / 4);
        last = rows - rng.random_range(0..=rows / 4);
    }
    for expert in 0..experts {
        let left = last - first;
        let drawn = if rng.random() { rng.random_range(0..=left.min(2)) } else { rng.random_range(0..=left) };
        let end = first + if expert + 1 == experts { left } else { drawn };
        while first < end {
            let next = end.min(first + most);
            tiles.extend([expert, first, next, 0]);
            first = next;
        }
    }
    tiles[0] = tiles.len() as u32 / 4 - 1;
    tiles.resize(count, 0);
    tiles
}

/// Draws [`Content::Slots`]: those that there are no more slots for are idle, too.
fn slots(bound: u32, count: usize, rng: &mut Pcg64Mcg) -> Vec<u32> {
    let slots = shuffled(bound, rng).into_iter().chain(std::iter::repeat(ABSENT)).take(count);
    slots.map(|slot| if rng.random_range(0..4) == 0 { ABSENT } else { slot }).collect()
}

/// Draws [`Content::Runs`]; half of the runs have one row.
fn runs((bound, most): (u32, u32), count: usize, rng: &mut Pcg64Mcg) -> Vec<u32> {
    let mut slots = shuffled(bound, rng).into_iter();
    let mut rows = Vec::with_capacity(count);
    while rows.len() < count {
        let left = (count - rows.len()).min(most as usize);
        let length = if rng.random() { 1 } else { rng.random_range(1..=left) };
        let slot = if rng.random_range(0..4) == 0 { None } else { slots.next() };
        rows.extend(std::iter::repeat_n(slot.unwrap_or(ABSENT), length));
    }
    rows
}

/// Draws [`Content::Steps`] for the rows of these slots; about half of the runs end at a multiple of `chunk`.
pub(super) fn steps(slots: &[u8], (bound, chunk): (u32, u32), rng: &mut Pcg64Mcg) -> Vec<u8> {
    let slots: Vec<u32> = elements(slots).collect();
    let mut positions: Vec<u32> = Vec::with_capacity(slots.len());
    for run in slots.chunk_by(|a, b| a == b && *a != ABSENT) {
        let length = run.len() as u32;
        let start = rng.random_range(0..=bound - length);
        let whole = ((start + length) / chunk * chunk).checked_sub(length).filter(|_| rng.random());
        let start = whole.unwrap_or(start);
        let start = if start % chunk + length > chunk { start / chunk * chunk } else { start };
        positions.extend(start..start + length);
    }
    bytemuck::cast_slice(&positions).to_vec()
}

/// Draws [`Content::Sequences`]: at most `count`, of at most `most` tokens, which are many of a few.
fn lengths(places: u32, (count, most): (usize, u32), rng: &mut Pcg64Mcg) -> Vec<u32> {
    let (mut lengths, mut left) = (Vec::new(), places);
    while left > 0 {
        let behind = (count - lengths.len() - 1) as u64 * u64::from(most);
        let least = u64::from(left).saturating_sub(behind).max(1) as u32;
        let largest = left.min(most);
        let length = if rng.random() { least } else { rng.random_range(least..=largest) };
        lengths.push(length);
        left -= length;
    }
    lengths
}

/// Draws a random assignment of rows to sorted ids, ascending within a run of equal ids.
pub(super) fn positions(ids: &[u8], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let ids: Vec<u32> = elements(ids).collect();
    let mut rows = shuffled(ids.len() as u32, rng);
    let mut start = 0;
    for run in ids.chunk_by(|a, b| a == b) {
        rows[start..start + run.len()].sort_unstable();
        start += run.len();
    }
    bytemuck::cast_slice(&rows).to_vec()
}
