//! Places of a micro-batch, and the rows that take them.

use std::mem;
use std::ops::Range;

use precast_plan::Shape;

use super::{Chunk, Packing};

/// Places of a micro-batch, `batch` times `seq_len` of them, and how rows take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    pub batch: u32,
    pub seq_len: u32,
    pub packing: Packing,
}

/// Rows of a micro-batch that is being filled, in order.
#[derive(Clone, Debug)]
pub struct Filling {
    of: Places,
    rows: usize,
    taken: usize,
}

impl Places {
    pub fn new(batch: u32, seq_len: u32, packing: Packing) -> Self {
        Self { batch, seq_len, packing }
    }

    pub fn count(self) -> usize {
        self.batch as usize * self.seq_len as usize
    }

    /// Returns the places that a row takes: those that predict, or a sequence.
    pub fn of_row(self, row: &Chunk) -> usize {
        match self.packing {
            Packing::None => self.seq_len as usize,
            Packing::Rows | Packing::Documents => row.places(),
        }
    }

    /// Returns the places of a sequence of so many tokens that predict.
    pub(super) fn of_sequence(self, predicting: usize) -> usize {
        if self.packing == Packing::None { self.seq_len as usize } else { predicting }
    }

    /// Returns the lengths of sequences that fill all places: those given, and of padding behind them.
    pub(super) fn filled(self, mut lengths: Vec<u32>) -> Vec<u32> {
        let left = self.count() as u32 - lengths.iter().sum::<u32>();
        lengths.extend((0..left).step_by(self.seq_len as usize).map(|from| self.seq_len.min(left - from)));
        lengths
    }

    /// Divides rows into micro-batches, in order; each has one teacher.
    pub fn divide<'c>(self, rows: impl IntoIterator<Item = &'c Chunk>) -> Vec<Range<usize>> {
        self.divide_places(rows.into_iter().map(|row| (self.of_row(row), row.teacher)))
    }

    /// Divides rows that take so many places, each with the number of its teacher, into micro-batches, in order.
    pub fn divide_places(self, rows: impl IntoIterator<Item = (usize, u32)>) -> Vec<Range<usize>> {
        let (mut filling, mut micros, mut last) = (Filling::new(self), Vec::<Range<usize>>::new(), None);
        for (number, (takes, teacher)) in rows.into_iter().enumerate() {
            let is_other = last.replace(teacher).is_some_and(|last| last != teacher);
            if is_other {
                filling = Filling::new(self);
            }
            let is_next = filling.take(takes).is_some() || is_other;
            match micros.last_mut().filter(|_| !is_next) {
                Some(micro) => micro.end += 1,
                None => micros.push(number..number + 1),
            }
        }
        micros
    }
}

impl Filling {
    pub fn new(of: Places) -> Self {
        Self { of, rows: 0, taken: 0 }
    }

    /// Places that no row takes.
    fn left(&self) -> usize {
        self.of.count() - self.taken
    }

    /// True if no row fits any more.
    pub fn is_full(&self) -> bool {
        self.left() == 0 || self.rows >= Shape::most_rows(self.of.batch, self.of.seq_len) as usize
    }

    /// Adds a row that takes so many places. Where it begins the next micro-batch, returns the places that are left of
    /// the one before.
    pub fn take(&mut self, takes: usize) -> Option<usize> {
        let before = (self.is_full() || takes > self.left()).then(|| mem::replace(self, Self::new(self.of)).left());
        self.rows += 1;
        self.taken += takes;
        before
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::abi::MASKED_TOKEN;
    use proptest::prelude::*;

    use super::*;
    use crate::data::MicroBatch;

    /// Rows of these lengths, each token another, the first of each masked.
    fn rows(lengths: &[usize]) -> Vec<Chunk> {
        let mut next = 1;
        let mut row = |length: usize| {
            let ids: Vec<u32> = (next..).take(length).collect();
            next += length as u32;
            let mut labels = ids.clone();
            labels[1] = MASKED_TOKEN;
            Chunk { ids, labels: Some(labels), ..Chunk::default() }
        };
        lengths.iter().map(|length| row(*length)).collect()
    }

    fn laid_out(places: Places, rows: &[Chunk]) -> Vec<(Range<usize>, MicroBatch)> {
        let micros = places.divide(rows);
        micros.into_iter().map(|micro| (micro.clone(), MicroBatch::laid_out(&rows[micro], places))).collect()
    }

    #[test]
    fn rows_lie_end_to_end_and_sequences_of_padding_behind_them() {
        let rows = rows(&[4, 2, 5, 3, 2]);
        let all = laid_out(Places::new(2, 4, Packing::Rows), &rows);
        let micros: Vec<Range<usize>> = all.iter().map(|(micro, _)| micro.clone()).collect();
        assert_eq!(micros, [0..2, 2..4, 4..5]);
        let [first, second, third] = [0, 1, 2].map(|number| &all[number].1);
        let masked = MASKED_TOKEN;
        assert_eq!((&first.ids[..], &first.lengths[..]), (&[1, 2, 3, 5, 0, 0, 0, 0][..], &[3, 1, 4][..]));
        assert_eq!(first.targets, [masked, 3, 4, masked, masked, masked, masked, masked]);
        assert_eq!((&second.ids[..], &second.lengths[..]), (&[7, 8, 9, 10, 12, 13, 0, 0][..], &[4, 2, 2][..]));
        assert_eq!((&third.ids[..], &third.lengths[..]), (&[15, 0, 0, 0, 0, 0, 0, 0][..], &[1, 4, 3][..]));
    }

    #[test]
    fn full_rows_lie_alike_under_both() {
        let rows = rows(&[9; 7]);
        let [none, packed] = [Packing::None, Packing::Rows].map(|packing| laid_out(Places::new(3, 8, packing), &rows));
        assert_eq!(none, packed);
    }

    #[test]
    fn rows_of_a_micro_batch_are_bounded() {
        let rows = rows(&[2; 200]);
        let counts = |batch, seq_len| -> Vec<usize> {
            Places::new(batch, seq_len, Packing::Rows).divide(&rows).iter().map(ExactSizeIterator::len).collect()
        };
        assert_eq!((counts(2, 1024), counts(40, 8), counts(1, 64)[0]), (vec![128, 72], vec![40; 5], 4));
    }

    proptest! {
        #[test]
        fn each_token_that_predicts_has_one_place(
            batch in 1u32..6,
            seq_len in 1u32..40,
            lengths in prop::collection::vec(0.0f64..1.0, 1..60),
        ) {
            let lengths: Vec<usize> =
                lengths.iter().map(|share| 2 + (share * share * f64::from(seq_len)) as usize).collect();
            let rows = rows(&lengths);
            let places = Places::new(batch, seq_len, Packing::Rows);
            let mut next = 0;
            for (micro, laid_out) in laid_out(places, &rows) {
                prop_assert_eq!(micro.start, next);
                next = micro.end;
                prop_assert!(micro.len() <= Shape::most_rows(batch, seq_len) as usize);
                let length = |length: &u32| *length as usize;
                prop_assert_eq!(laid_out.lengths.iter().map(length).sum::<usize>(), places.count());
                prop_assert!(laid_out.lengths.iter().all(|length| (1..=seq_len).contains(length)));
                // Another row would not fit, or there is none.
                let takes: usize = rows[micro.clone()].iter().map(|row| row.targets().len()).sum();
                let fits = |row: &Chunk| takes + row.targets().len() <= places.count();
                let is_bound = micro.len() == Shape::most_rows(batch, seq_len) as usize;
                prop_assert!(is_bound || !rows.get(micro.end).is_some_and(fits));
                let mut start = 0;
                for (row, length) in rows[micro].iter().zip(&laid_out.lengths) {
                    let of = start..start + *length as usize;
                    start = of.end;
                    prop_assert_eq!(&laid_out.ids[of.clone()], &row.ids[..row.ids.len() - 1]);
                    prop_assert_eq!(&laid_out.targets[of], row.targets());
                }
                prop_assert!(laid_out.targets[start..].iter().all(|target| *target == MASKED_TOKEN));
                prop_assert!(laid_out.ids[start..].iter().all(|id| *id == 0));
            }
            prop_assert_eq!(next, rows.len());
        }

        #[test]
        fn a_row_in_each_sequence_is_the_layout_of_none(
            (batch, seq_len) in (1usize..6, 1usize..40),
            shares in prop::collection::vec(0.0f64..1.0, 1..60),
        ) {
            let lengths: Vec<usize> = shares.iter().map(|share| 2 + (share * seq_len as f64) as usize).collect();
            let lengths: Vec<usize> = lengths.into_iter().map(|length| length.min(seq_len + 1)).collect();
            let rows = rows(&lengths);
            let places = Places::new(batch as u32, seq_len as u32, Packing::None);
            for ((micro, laid_out), expected) in laid_out(places, &rows).into_iter().zip(rows.chunks(batch)) {
                prop_assert_eq!(&rows[micro], expected);
                let mut ids = vec![0; batch * seq_len];
                let mut targets = vec![MASKED_TOKEN; batch * seq_len];
                for (number, row) in expected.iter().enumerate() {
                    let start = number * seq_len;
                    row.lay_out(&mut ids[start..start + seq_len], &mut targets[start..start + seq_len]);
                }
                prop_assert_eq!((laid_out.ids, laid_out.targets), (ids, targets));
                prop_assert_eq!(laid_out.lengths, vec![seq_len as u32; batch]);
            }
        }
    }
}
