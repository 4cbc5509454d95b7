//! Random sequences, and the rows that decode them.

use precast_plan::Slots;
use precast_plan::decoding::Prefill;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

/// A sequence in its slot, of which the tokens behind the prompt are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedSequence {
    pub slot: u32,
    pub ids: Vec<u32>,
    /// Tokens of the prompt, at least one less than of the sequence.
    pub prompt: u32,
}

/// A row of a phase: the slot and position of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedRow {
    pub slot: u32,
    pub position: u32,
    pub id: u32,
}

impl CheckedSequence {
    /// True if the token at this position is one, and not of the prompt.
    pub(super) fn decodes(&self, position: u32) -> bool {
        (self.prompt..self.ids.len() as u32).contains(&position)
    }

    fn row(&self, position: u32) -> CheckedRow {
        CheckedRow { slot: self.slot, position, id: self.ids[position as usize] }
    }
}

/// Draws a sequence for each slot, from half of a slot's tokens up to all of them, and of those up to half as its
/// prompt. Slots are in random order. The first sequence has no prompt and all tokens: every position is decoded.
pub fn sequences(slots: Slots, vocab: u32, rng: &mut Pcg64Mcg) -> Vec<CheckedSequence> {
    let mut order: Vec<u32> = (0..slots.count).collect();
    order.shuffle(rng);
    let all = order.into_iter().enumerate().map(|(number, slot)| {
        let most = slots.seq_len;
        let length = if number == 0 { most } else { rng.random_range(most.div_ceil(2)..=most) };
        let prompt = if number == 0 { 0 } else { rng.random_range(0..=length / 2) };
        let ids = (0..length).map(|_| rng.random_range(0..vocab)).collect();
        CheckedSequence { slot, ids, prompt: prompt.min(length - 1) }
    });
    all.collect()
}

/// Returns the rows of all prompts in launches, in random order: attention needs the keys of its own launch and of
/// those before. Where prompts are divided at chunks, the rows of each stay in the order of their positions.
pub fn prompts(sequences: &[CheckedSequence], prefill: Prefill, rng: &mut Pcg64Mcg) -> Vec<Vec<CheckedRow>> {
    let rows: Vec<CheckedRow> =
        sequences.iter().flat_map(|one| (0..one.prompt).map(|position| one.row(position))).collect();
    let shuffled = |launch: &[CheckedRow]| {
        let is_run = |a: &CheckedRow, b: &CheckedRow| prefill.chunk > 1 && a.slot == b.slot;
        let mut runs: Vec<&[CheckedRow]> = launch.chunk_by(is_run).collect();
        runs.shuffle(rng);
        runs.concat()
    };
    prefill.launches(&rows, |row| row.position).into_iter().map(shuffled).collect()
}

/// Returns the rows of each step of decoding: the next token of each sequence that has one.
pub fn decoded(sequences: &[CheckedSequence]) -> impl Iterator<Item = Vec<CheckedRow>> + '_ {
    let step = |step| -> Vec<CheckedRow> {
        let next = sequences.iter().map(move |one| (one, one.prompt + step));
        next.filter(|(one, at)| (*at as usize) < one.ids.len()).map(|(one, at)| one.row(at)).collect()
    };
    (0..).map(step).take_while(|rows| !rows.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn every_token_is_a_row_once_and_after_those_before_it() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let sizes = [(1, 1, 1), (1, 9, 64), (5, 16, 1), (5, 300, 64), (70, 40, 1), (70, 150, 64)];
        for (count, seq_len, chunk) in sizes {
            let all = sequences(Slots { count, seq_len }, 96, rng);
            let slots: HashSet<u32> = all.iter().map(|one| one.slot).collect();
            assert_eq!(slots, (0..count).collect());
            let (mut stored, mut rows) = (HashSet::new(), 0);
            let launches = prompts(&all, Prefill { few_rows: 64, most_rows: 64, chunk }, rng);
            let of_prompts = all.iter().map(|one| one.prompt as usize).sum::<usize>();
            assert!(chunk > 1 || launches.len() == of_prompts.div_ceil(64), "launches that are not full");
            for launch in launches.into_iter().chain(decoded(&all)) {
                assert!(launch.len() <= count.max(64) as usize);
                stored.extend(launch.iter().map(|row| (row.slot, row.position)));
                rows += launch.len();
                let before =
                    |row: &CheckedRow| (0..row.position).all(|position| stored.contains(&(row.slot, position)));
                assert!(launch.iter().all(before));
                for run in launch.chunk_by(|a, b| a.slot == b.slot) {
                    let (first, last) = (run[0].position, run[run.len() - 1].position);
                    let in_order = run.iter().zip(first..).all(|(row, position)| row.position == position);
                    let is_run = in_order && (first % 64 == 0 || first / 64 == last / 64);
                    assert!(is_run || chunk == 1, "a run from {first} to {last}");
                }
            }
            assert_eq!((stored.len(), rows), (rows, all.iter().map(|one| one.ids.len()).sum()));
        }
    }
}
