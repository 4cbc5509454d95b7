//! Steps of a student that learns from what it writes: completions, and the micro-batches that they become.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use itertools::Itertools;
use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::Shape;
use serde::{Deserialize, Serialize};

use crate::device::decoding::DecodingDevice;
use crate::device::decoding::schedule::{Drawn, Sequence};
use crate::device::session::Session;
use crate::inputs::data::{Chunk, MicroBatch};
use crate::options::{OnPolicy, RunConfig};
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;
use crate::run::rollout::RolloutSums;

/// A sequence that a step trains on.
pub(super) struct Rollout {
    /// Its number among all of the run.
    pub number: u64,
    pub chunk: Arc<Chunk>,
    /// Scores of a completion that the student wrote; none of one of the data.
    pub drawn: Option<Drawn>,
}

/// Takes a sequence that is complete, and what was drawn for it.
type Done<'a> = dyn FnMut(Sequence, Drawn) -> Result<(), Failure> + 'a;

/// The sequences of a rank in a step, and the time of writing them.
pub(super) struct Rollouts {
    pub all: Vec<Rollout>,
    pub seconds: f64,
}

/// True if the student completes the sequence with this number: a share of them, by a hash of seed and number.
fn is_written((share, seed): (f32, u64), number: u64) -> bool {
    let mut hash = seed.wrapping_add((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
        hash = (hash ^ hash >> 30).wrapping_mul(factor);
    }
    // As many bits as f32 has, so that a share of 1 has all.
    ((hash >> 40) as f32) < share * (1 << 24) as f32
}

/// Returns a note on a share of which the student completes no sequence of a run.
pub(super) fn note_of_none(config: &RunConfig) -> Option<String> {
    let (OnPolicy { share, .. }, completions) = config.on_policy.zip(config.completions)?;
    let all = config.steps().saturating_mul(config.sequences_a_step());
    let is_any = (0..all).any(|number| is_written((share, completions.sampling.seed), number));
    (!is_any).then(|| {
        format!("--on-policy {share:?}: the student writes none of the run's {all} sequences, which are the data's own")
    })
}

impl Rollouts {
    /// Has the student complete prompts, the data's `rows`, for the sequences `own` of a step whose first one has the
    /// number `first`.
    ///
    /// # Errors
    /// [`Failure`] of the device, and of logits that are not finite.
    pub fn write(
        session: &mut Session,
        (config, stops): (&RunConfig, &[u32]),
        rows: &[Arc<Chunk>],
        numbered: (u64, Range<u64>),
    ) -> Result<Self, Failure> {
        let decoding = session.plan.decoding.expect("an on-policy plan decodes");
        let mut device = DecodingDevice::new(session, decoding, stops)?;
        let complete = |sequences, done: &mut Done<'_>| device.complete(sequences, done);
        Self::write_by(complete, (config, decoding.slots.seq_len), rows, numbered)
    }

    fn write_by(
        complete: impl FnOnce(Vec<Sequence>, &mut Done<'_>) -> Result<(), Failure>,
        (config, seq_len): (&RunConfig, u32),
        rows: &[Arc<Chunk>],
        (first, own): (u64, Range<u64>),
    ) -> Result<Self, Failure> {
        let (on_policy, completions) = config.on_policy.zip(config.completions).expect("an on-policy run");
        let began = Instant::now();
        let first_own = first + own.start;
        let mut all: Vec<Rollout> = own
            .map(|index| {
                let chunk = Arc::clone(&rows[(index / u64::from(on_policy.group_size)) as usize]);
                Rollout { number: first + index, chunk, drawn: None }
            })
            .collect();
        let written =
            all.iter().filter(|rollout| is_written((on_policy.share, completions.sampling.seed), rollout.number));
        let sequences = written.map(|Rollout { number, chunk, .. }| {
            let prompt: Arc<[u32]> = chunk.prompt().into();
            let most = (prompt.len() as u32 + completions.max_tokens).min(seq_len);
            Sequence { number: *number, prompt, most }
        });
        let sequences: Vec<Sequence> = sequences.collect();
        complete(sequences, &mut |Sequence { number, prompt, .. }, drawn| {
            let rollout = &mut all[(number - first_own) as usize];
            let (teacher_prompt, teacher) = (rollout.chunk.teacher_prompt.clone(), rollout.chunk.teacher);
            rollout.chunk = Arc::new(Chunk { teacher_prompt, teacher, ..completed(&prompt, &drawn.ids) });
            rollout.drawn = Some(drawn);
            Ok(())
        })?;
        Ok(Self { all, seconds: began.elapsed().as_secs_f64() })
    }

    /// Returns the sequences of each of so many replicas.
    pub fn replicas(&self, count: u32) -> impl Iterator<Item = &[Rollout]> {
        self.all.chunks(self.all.len() / count as usize)
    }

    /// Lays a micro-batch of rollouts out, by their indices.
    pub fn micro_batch(&self, rows: &[usize], (batch, seq_len): (u32, u32)) -> MicroBatch {
        MicroBatch::packed(rows.iter().map(|row| &*self.all[*row].chunk), (batch as usize, seq_len as usize))
    }
}

impl Rollout {
    /// Returns the positions that its tokens take.
    pub fn positions(&self) -> usize {
        self.chunk.ids.len() - 1
    }
}

/// Adds up the sequences of a replica, in their order, that are in micro-batches of so many positions.
pub(super) fn sums(rollouts: &[Rollout], stops: &[u32], positions: u64) -> RolloutSums {
    let mut sums = RolloutSums { positions, ..RolloutSums::default() };
    for rollout in rollouts {
        sums.counted += rollout.chunk.counted() as u64;
        sums.inputs += rollout.positions() as u64;
        let Some(Drawn { ids, log_probs, .. }) = &rollout.drawn else { continue };
        sums.completions += 1;
        sums.drawn += ids.len() as u64;
        sums.longest = sums.longest.max(ids.len() as u64);
        sums.ended += u64::from(ids.last().is_some_and(|last| stops.contains(last)));
        sums.nll -= log_probs.iter().map(|value| f64::from(*value)).sum::<f64>();
    }
    sums
}

/// Joins a prompt and its completion, of which the latter counts.
pub(super) fn completed(prompt: &[u32], completion: &[u32]) -> Chunk {
    let masked = std::iter::repeat_n(MASKED_TOKEN, prompt.len());
    Chunk {
        ids: [prompt, completion].concat(),
        labels: Some(masked.chain(completion.iter().copied()).collect()),
        ..Chunk::default()
    }
}

/// Divides rows of so many positions, each with the number of its teacher, among micro-batches of one teacher: the
/// longest first, each to the first micro-batch that has room for it (first fit decreasing). Returns the indices of
/// each one's rows.
pub(super) fn pack(rows: impl Iterator<Item = (usize, u32)>, (batch, seq_len): (u32, u32)) -> Vec<Vec<usize>> {
    let (places, most) = ((batch * seq_len) as usize, Shape::most_rows(batch, seq_len) as usize);
    let longest_first = rows.zip(0..).sorted_by_key(|((positions, _), _)| Reverse(*positions));
    let mut packed: Vec<(u32, usize, Vec<usize>)> = Vec::new();
    for ((positions, teacher), row) in longest_first {
        let room = |(of, taken, rows): &&mut (u32, usize, Vec<usize>)| {
            *of == teacher && *taken + positions <= places && rows.len() < most
        };
        match packed.iter_mut().find(room) {
            Some((_, taken, rows)) => {
                *taken += positions;
                rows.push(row);
            }
            None => packed.push((teacher, positions, vec![row])),
        }
    }
    packed.into_iter().map(|(.., rows)| rows).collect()
}

/// Tokens that were scored otherwise in training than at sampling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mismatch {
    pub count: u64,
    /// Number of the sequence and position of the first.
    pub first: Option<(u64, usize)>,
}

impl Mismatch {
    /// Refuses a step, from 1, with any.
    ///
    /// # Errors
    /// [`RunFault`], which names the first.
    pub fn refuse(&self, step: u64) -> Result<(), RunFault> {
        let Some((sequence, position)) = self.first else { return Ok(()) };
        Err(RunFault(format!(
            "step {step}: {} tokens have another log-probability in training than when they were drawn, the first of \
            sequence {sequence} \
             at position {position}: the student was not decoded by the weights that it trains, or keys and values \
             were not its own. \
             That is a bug of precast or a fault of the device: run precast selftest, and report it",
            self.count
        )))
    }

    /// Compares the scores of a micro-batch, log-probabilities and behind them log-sum-exps, with those of its tokens
    /// as they were drawn.
    pub(super) fn add(&mut self, rollouts: &Rollouts, rows: &[usize], scores: &[u8]) {
        let scores: Vec<u32> = bytemuck::pod_collect_to_vec(scores);
        let (log_probs, lses) = scores.split_at(scores.len() / 2);
        let mut end = 0;
        for rollout in rows.iter().map(|row| &rollouts.all[*row]) {
            let first = end;
            end += rollout.positions();
            let Rollout { number, chunk, drawn: Some(drawn) } = rollout else { continue };
            let prompt = chunk.ids.len() - drawn.ids.len();
            for (token, (log_prob, lse)) in drawn.log_probs.iter().zip(&drawn.lses).enumerate() {
                let at = first + prompt + token - 1;
                if (log_probs[at], lses[at]) != (log_prob.to_bits(), lse.to_bits()) {
                    self.count += 1;
                    self.first.get_or_insert((*number, prompt + token));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::device::decoding::DecodeError;
    use crate::device::decoding::schedule::{self, Decoder, Row, RowProgress};
    use crate::device::run_models::RunModels;
    use crate::options::{DeviceChoice, ModelOptions, Options};

    /// A decoder to which rows of prompts are altered on their way.
    struct Altered<'a> {
        device: DecodingDevice<'a>,
        alter: fn(&mut Row),
    }

    impl Decoder for Altered<'_> {
        type Error = DecodeError;

        fn prefill(&mut self, rows: &[Row]) -> Result<(), DecodeError> {
            let mut rows = rows.to_vec();
            rows.iter_mut().for_each(self.alter);
            self.device.prefill(&rows)
        }

        fn decode(&mut self, rows: &[Row], steps: u32) -> Result<Vec<RowProgress>, DecodeError> {
            self.device.decode(rows, steps)
        }

        fn read(&mut self, slot: u32, first: u32, end: u32) -> Result<Drawn, DecodeError> {
            self.device.read(slot, first, end)
        }
    }

    fn config() -> RunConfig {
        let model = PathBuf::from("tests/models/tiny.json");
        let models =
            ModelOptions { teacher: vec![model.clone().into()], student: Some(model), ..ModelOptions::default() };
        let mut options = Options { models, ..Options::default() };
        options.on_policy.on_policy = Some(1.0);
        options.on_policy.completions.max_tokens = Some(8);
        (options.shape.batch_size, options.shape.seq_len) = (2, 16);
        options.target.device = DeviceChoice::Sim;
        options.planned().unwrap()
    }

    /// The first token that training scores otherwise than an altered decoder did, and how many there are, of two
    /// sequences with prompts of 5 tokens.
    fn mismatch(alter: fn(&mut Row), between: impl FnOnce(&mut Session)) -> Mismatch {
        let config = config();
        let models = RunModels::open_or_random(&config, [1, 2]).unwrap();
        let mut session = Session::of(&models, &config).unwrap();
        let rows = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]].map(|prompt| Arc::new(completed(&prompt, &[])));
        let decoding = session.plan.decoding.unwrap();
        let shape = (decoding.slots.count, decoding.prefill);
        let complete = |sequences, done: &mut Done<'_>| {
            let mut altered = Altered { device: DecodingDevice::new(&mut session, decoding, &[]).unwrap(), alter };
            schedule::run(&mut altered, shape, sequences, done)
        };
        let rollouts = Rollouts::write_by(complete, (&config, 16), &rows, (0, 0..2)).unwrap();
        between(&mut session);
        let packed = pack([(15, 0); 2].into_iter(), (2, 16)).remove(0);
        session.micro(&rollouts.micro_batch(&packed, (2, 16)), 1.0, 0).unwrap();
        let ticket = session.scores().unwrap();
        let mut mismatch = Mismatch::default();
        mismatch.add(&rollouts, &packed, &session.wait(ticket).unwrap().bytes);
        mismatch
    }

    /// Decoding and training agree on every token; with other weights, keys or positions they do not from the first one
    /// on.
    #[test]
    fn what_training_scores_otherwise_is_counted_from_its_start() {
        fn keep(_: &mut Row) {}
        assert_eq!(mismatch(keep, |_| {}), Mismatch::default());
        let stale = mismatch(keep, |session| {
            let rows = [Chunk::plain([1, 2, 3]), Chunk::plain([4, 5, 6])];
            session.micro(&MicroBatch::of(&rows, (2, 16)), 1.0, 0).unwrap();
            session.update(0, 1e-2).unwrap();
        });
        assert_eq!(stale, Mismatch { count: 16, first: Some((0, 5)) });
        let message = stale.refuse(7).unwrap_err().to_string();
        let said = "step 7: 16 tokens have another log-probability in training than when they were drawn, the first \
            of sequence 0 at \
                    position 5: ";
        assert!(message.starts_with(said) && Mismatch::default().refuse(7).is_ok(), "{message}");
        let slot_off = mismatch(|row| row.slot ^= 1, |_| {});
        assert_eq!((slot_off.count > 8, slot_off.first), (true, Some((0, 5))));
        let position_off = mismatch(|row| row.position ^= 1, |_| {});
        assert_eq!((position_off.count > 8, position_off.first), (true, Some((0, 5))));
    }

    #[test]
    fn a_share_of_the_sequences_is_written() {
        let written = |share| (0..10_000).filter(|number| is_written((share, 0), *number)).count();
        assert_eq!((written(1.0), written(1e-6)), (10_000, 0));
        assert!((4_800..5_200).contains(&written(0.5)), "{}", written(0.5));
    }

    #[test]
    fn short_sequences_fill_what_long_ones_leave() {
        let packed = |positions: &[usize], shape| pack(positions.iter().map(|positions| (*positions, 0)), shape);
        assert_eq!(packed(&[48, 12, 24, 27], (2, 48)), [vec![0, 3, 1], vec![2]]);
        assert_eq!(packed(&[4, 16, 3], (2, 48)), [vec![1, 0, 2]]);
        let of_two = pack([(8, 0), (8, 1), (8, 0), (9, 1)].into_iter(), (2, 48));
        assert_eq!(of_two, [vec![3, 1], vec![0, 2]], "a micro-batch has one teacher");
        // At most as many rows as a plan has room for.
        assert_eq!(packed(&[1; 9], (4, 16)), [(0..4).collect(), (4..8).collect(), vec![8]]);
    }
}
