//! The loss of data that a run does not train on: the launches of a micro-batch, and no update.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use precast_fatbins::Digest;
use precast_kernels::abi::step_metrics;
use precast_system::progress::{Progress, Unit};

use super::on_policy::completed;
use crate::base::record_text::finite;
use crate::device::decoding::DecodingDevice;
use crate::device::decoding::schedule::{Drawn, Sequence};
use crate::device::session::Session;
use crate::inputs::data::{Chunk, Dataset, MicroBatch, Packing, Places};
use crate::options::{Completions, OutputOptions, RunConfig};
use crate::programs::evaluate::ids_sha256;
use crate::ranks::{RankError, Ranks};
use crate::run::failure::Failure;
use crate::run::record::{RunRecord, Since};
use crate::run::step::{HeldOutRecord, StepRecord};

/// Number of the first held-out completion: no sequence that is trained on has the random numbers of one.
pub(super) const FIRST_NUMBER: u64 = 1_000_000_000_000_000_000;

/// Place of its sequences in messages.
pub(super) const EVAL_DATA: &str = "--eval-data";

/// Data that a run does not train on, in memory whole.
pub struct HeldOut {
    /// Digest of what losses are of.
    pub sha256: Digest,
    chunks: Vec<Chunk>,
    /// Tokens that count; 0 of prompts, which the student completes.
    counted: u64,
    /// Tokens that end what it writes.
    stops: Vec<u32>,
}

/// Returns the digest of what losses are of: of held-out tokens, as `eval` has it, and of prompts with how they are
/// completed.
pub fn sha256(data: &Dataset, config: &RunConfig) -> Digest {
    let ids = ids_sha256(data);
    let Some(completions) = config.completions.filter(|_| data.counted() == 0) else { return ids };
    let Completions { max_tokens, sampling, .. } = completions;
    let how = format!("{max_tokens} {sampling:?}");
    Digest::of_parts("precast.held_out_prompts", [&ids.0[..], how.as_bytes()])
}

impl HeldOut {
    pub fn new(data: &Dataset, config: &RunConfig, stops: Vec<u32>) -> Self {
        let mut chunks = data.chunks.clone();
        // A micro-batch has one teacher.
        chunks.sort_by_key(|chunk| chunk.teacher);
        Self { sha256: sha256(data, config), chunks, counted: data.counted(), stops }
    }

    /// Their sequences.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Has the student complete the prompts whose places `is_own` names; the others stay as they are.
    fn completed(
        &self,
        config: &RunConfig,
        session: &mut Session,
        is_own: impl Fn(usize) -> bool,
    ) -> Result<Vec<Chunk>, Failure> {
        let (completions, decoding) = config.completions.zip(session.plan.decoding).expect("a plan that decodes");
        let sequences = self.chunks.iter().enumerate().filter(|(index, _)| is_own(*index));
        let sequences = sequences.map(|(index, chunk)| Sequence {
            number: FIRST_NUMBER + index as u64,
            prompt: Arc::from(&chunk.ids[..]),
            most: chunk.ids.len() as u32 + completions.max_tokens,
        });
        let mut all = self.chunks.clone();
        let mut device = DecodingDevice::new(session, decoding, &self.stops)?;
        let written = device.complete(sequences, |Sequence { number, prompt, .. }, Drawn { ids, .. }| {
            let chunk = &mut all[(number - FIRST_NUMBER) as usize];
            let (teacher_prompt, teacher) = (chunk.teacher_prompt.take(), chunk.teacher);
            *chunk = Chunk { teacher_prompt, teacher, ..completed(&prompt, &ids) };
            Ok::<_, Failure>(())
        });
        written.map_err(|failure| failure.of_drawing(EVAL_DATA, FIRST_NUMBER)).map(|()| all)
    }

    /// Their losses under the weights as they are: a mean over all tokens that count, of prompts over those that the
    /// student writes. Ranks take micro-batches in turn, and each adds up those of all in their order, so that the sum
    /// does not depend on how many ranks there are. What the launches leave in gradients and metrics the first
    /// micro-batch of the next step overwrites.
    pub fn losses(&self, config: &RunConfig, session: &mut Session, ranks: &Ranks) -> Result<HeldOutRecord, Failure> {
        let (turns, turn) = (ranks.count() as usize, ranks.place.rank as usize);
        // Which prompts a rank completes is known before their lengths are.
        let packing = if self.counted == 0 { Packing::None } else { config.places().packing };
        let places = Places { packing, ..config.places() };
        let micros = places.divide(&self.chunks);
        let (chunks, counted) = match self.counted {
            0 => {
                let own: Vec<_> = micros.iter().skip(turn).step_by(turns).collect();
                let completed = self.completed(config, session, |index| own.iter().any(|own| own.contains(&index)))?;
                let own = completed.iter().map(|chunk| chunk.counted() as u64).sum();
                (Cow::Owned(completed), sum_of_ranks(own, ranks)?)
            }
            counted => (Cow::Borrowed(&self.chunks[..]), counted),
        };
        let loss_scale = (1.0 / counted as f64) as f32;
        let mut own: Vec<[f32; 2]> = Vec::new();
        let progress = Progress::start("held-out loss", Unit::Things("micro-batches"));
        let most = micros.len().div_ceil(turns) as u64;
        let batch = |rows: &Range<usize>| MicroBatch::laid_out(&chunks[rows.clone()], places);
        let own_micros: Vec<&Range<usize>> = micros.iter().skip(turn).step_by(turns).collect();
        for (index, rows) in own_micros.iter().enumerate() {
            session.begin_pass(index, || own_micros[index..].iter().map(|rows| batch(rows)))?;
            session.micro(&batch(rows), loss_scale, 0)?;
            let metrics: step_metrics = bytemuck::pod_read_unaligned(&session.read(session.plan.metrics)?);
            own.push([metrics.kd_loss, metrics.ce_loss]);
            progress.set(own.len() as u64, most);
        }
        let of_ranks = ranks.all_gather(bytemuck::cast_slice(&own))?;
        let of_ranks: Vec<Vec<[f32; 2]>> = of_ranks.iter().map(|said| bytemuck::pod_collect_to_vec(said)).collect();
        let all = (0..micros.len()).map(|index| of_ranks[index % turns][index / turns]);
        let sum = |which: usize| all.clone().map(|losses| f64::from(losses[which])).sum::<f64>() as f32;
        let metrics = step_metrics { kd_loss: sum(0), ce_loss: sum(1), ..bytemuck::Zeroable::zeroed() };
        Ok(HeldOutRecord {
            // As f32, like its parts: it reads back to the last bit.
            eval_loss: finite(f64::from(config.loss(&metrics) as f32)),
            eval_kd_loss: finite(f64::from(metrics.kd_loss)),
            eval_ce_loss: finite(f64::from(metrics.ce_loss)),
            eval_tokens: counted,
        })
    }
}

/// Adds up what each rank has counted.
fn sum_of_ranks(own: u64, ranks: &Ranks) -> Result<u64, RankError> {
    let of_ranks = ranks.all_gather(&own.to_le_bytes())?;
    Ok(of_ranks.iter().flat_map(|said| bytemuck::pod_collect_to_vec::<u8, u64>(said)).sum())
}

impl Since {
    /// Follows from the record of the run so far and the data now, of a run that continues after `done` steps; none
    /// where nothing was ever held out.
    pub fn of(before: Option<&RunRecord>, sha256: Option<Digest>, done: u64) -> Option<Self> {
        let before = before.and_then(|before| before.held_out);
        let Some(sha256) = sha256 else { return before };
        let same = before.filter(|before| before.sha256 == sha256);
        Some(same.unwrap_or(Self { sha256, after_step: done }))
    }

    /// The steps among these whose losses compare.
    pub fn compared(since: Option<Self>, records: &[StepRecord]) -> &[StepRecord] {
        records.get(since.map_or(0, |since| since.after_step as usize)..).unwrap_or_default()
    }

    /// Names the step where the best checkpoint starts again, if losses of other data are left behind.
    pub fn change(since: Option<Self>, before: &[StepRecord]) -> Option<String> {
        let passed = before.len() - Self::compared(since, before).len();
        let scored = before[..passed].iter().any(|record| record.held_out.is_some());
        scored.then(|| {
            format!("--eval-data has other tokens than before: the best checkpoint is that of the steps after {passed}")
        })
    }
}

/// Held-out losses of a run so far: the step whose checkpoint is best by them, and for how long they have not fallen.
/// They are numbers of f32, which `metrics.jsonl` gives back to the last bit: a run that continues judges by the same
/// ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Step of the last evaluation, and its loss; none where that is not finite.
    last: Option<(u64, Option<f32>)>,
    /// The first of the lowest.
    lowest: Option<(u64, f32)>,
    /// Evaluations behind that, or all without one.
    since_lowest: u64,
    /// The first of the lowest of steps that have a checkpoint.
    best: Option<(u64, f32)>,
}

impl Scores {
    /// Those of a run that continues after these steps, with checkpoints after some of them.
    pub fn of(records: &[StepRecord], checkpoints: &[u64]) -> Self {
        let mut scores = Self::default();
        for record in records {
            scores.add(record);
            if checkpoints.contains(&record.step) {
                scores.saved(record.step);
            }
        }
        scores
    }

    /// A step is done, perhaps with an evaluation. A loss that is not finite is none, and of equal ones the first is
    /// the lowest.
    pub fn add(&mut self, record: &StepRecord) {
        let Some(held_out) = &record.held_out else { return };
        let loss = held_out.eval_loss.map(|loss| loss as f32).filter(|loss| loss.is_finite());
        self.last = Some((record.step, loss));
        match loss.filter(|loss| self.lowest.is_none_or(|(_, lowest)| *loss < lowest)) {
            Some(loss) => (self.lowest, self.since_lowest) = (Some((record.step, loss)), 0),
            None => self.since_lowest += 1,
        }
    }

    /// The loss after a step, if it is lower than that of every step with a checkpoint.
    fn lower(&self, step: u64) -> Option<(u64, f32)> {
        let (_, loss) = self.last.filter(|(last, _)| *last == step)?;
        loss.filter(|loss| self.best.is_none_or(|(_, best)| *loss < best)).map(|loss| (step, loss))
    }

    /// A step has a checkpoint.
    pub fn saved(&mut self, step: u64) {
        self.best = self.lower(step).or(self.best);
    }

    /// The step whose checkpoint is best, and its loss.
    pub fn best(&self) -> Option<(u64, f64)> {
        self.best.map(|(step, loss)| (step, loss.into()))
    }

    /// What follows from the last evaluation, if that was after this step.
    pub fn verdict(&self, step: u64, output: &OutputOptions) -> HeldOutVerdict {
        HeldOutVerdict { saves: output.r#final.has_best() && self.lower(step).is_some(), ends: self.ends(output) }
    }

    /// True if losses have not fallen for as long as `--early-stop` waits.
    pub fn ends(&self, output: &OutputOptions) -> bool {
        output.early_stop.is_some_and(|most| self.since_lowest >= most)
    }

    /// Why a run ends before its last step.
    pub fn why(&self) -> String {
        let count = self.since_lowest;
        match self.lowest {
            Some((step, loss)) => {
                format!("{count} losses on --eval-data in a row are not below the {loss:.4} of step {step}")
            }
            None => format!("{count} losses on --eval-data in a row are not finite"),
        }
    }

    /// A note on a lowest loss of a step that has no checkpoint, of a run that is to leave its best step's weights.
    pub fn note(&self, output: &OutputOptions) -> Option<String> {
        let (step, loss) = self.lowest.filter(|lowest| output.r#final.has_best() && Some(*lowest) != self.best)?;
        Some(format!(
            "the lowest loss on --eval-data so far, {loss:.4} after step {step}, has no checkpoint: --final {} \
            chooses among steps that \
             have one",
            output.r#final
        ))
    }
}

/// What follows from an evaluation, for all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldOutVerdict {
    /// The step gets a checkpoint.
    pub saves: bool,
    /// No step follows.
    pub ends: bool,
}

impl HeldOutVerdict {
    /// That of rank 0, which knows the evaluations before this process; others have none of their own.
    pub fn shared(own: Option<Self>, ranks: &Ranks) -> Result<Self, RankError> {
        let Self { saves, ends } = own.unwrap_or_default();
        let said = ranks.broadcast(&[saves.into(), ends.into()])?;
        let is_said = |which: usize| said.get(which) == Some(&1);
        Ok(Self { saves: is_said(0), ends: is_said(1) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::{Final, Options};
    use crate::run::tests::steps;

    #[test]
    fn scores_of_other_data_do_not_compare() {
        let mut records = steps(&[1.0; 6], &[]);
        let of_none = HeldOutRecord { eval_loss: Some(1.0), eval_kd_loss: None, eval_ce_loss: None, eval_tokens: 1 };
        records[1].held_out = Some(of_none);
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let first = Since::of(None, Some(one), 0);
        let record = |held_out| RunRecord { held_out, ..RunRecord::default() };
        let compared = |since, done: usize| {
            (Since::compared(since, &records[..done]).len(), Since::change(since, &records[..done]))
        };
        assert_eq!(compared(first, 0), (0, None));
        // The record stays for the same data, and for none for a while.
        for sha256 in [Some(one), None] {
            assert_eq!(Since::of(Some(&record(first)), sha256, 3), first);
        }
        assert_eq!(compared(first, 3), (3, None));
        let changed = Since::of(Some(&record(first)), Some(other), 3);
        let (count, said) = compared(changed, 3);
        assert_eq!((count, said.unwrap().ends_with("that of the steps after 3")), (0, true));
        // And so on until they change once more.
        let later = Since::of(Some(&record(changed)), Some(other), 6);
        assert_eq!((later, compared(later, 6).0), (changed, 3));
        assert_eq!(compared(Since::of(Some(&record(changed)), Some(one), 6), 6).0, 0);
        // A run that held nothing out, and one of a program that did not record what.
        assert_eq!(compared(Since::of(Some(&RunRecord::default()), Some(one), 1), 1), (0, None));
        assert!(compared(Since::of(Some(&RunRecord::default()), Some(one), 2), 2).1.is_some());
        // Continued from an earlier checkpoint than the change.
        assert_eq!(compared(changed, 2).0, 0);
    }

    /// Scores of evaluations after steps 1, 2, ..., with checkpoints after some.
    fn scores(losses: &[f64], checkpoints: &[u64]) -> Scores {
        let mut records = steps(&vec![1.0; losses.len()], &[]);
        for (record, loss) in records.iter_mut().zip(losses) {
            let eval_loss = finite(*loss);
            record.held_out = Some(HeldOutRecord { eval_loss, eval_kd_loss: None, eval_ce_loss: None, eval_tokens: 1 });
        }
        Scores::of(&records, checkpoints)
    }

    fn output(r#final: Final, early_stop: Option<u64>) -> OutputOptions {
        OutputOptions { r#final, early_stop, ..Options::default().output }
    }

    #[test]
    fn the_first_of_the_lowest_with_a_checkpoint_is_best() {
        let best = |checkpoints: &[u64]| scores(&[3.0, 2.0, 2.0, 1.0], checkpoints).best();
        assert_eq!(best(&[1, 2, 3]), Some((2, 2.0)));
        assert_eq!((best(&[1, 3]), best(&[]), best(&[5])), (Some((3, 2.0)), None, None));
        let both = output(Final::Both, None);
        assert_eq!(scores(&[3.0, 2.0, 2.0, 1.0], &[4]).note(&both), None);
        let note = scores(&[3.0, 1.0, 2.0], &[1, 3]).note(&both).unwrap();
        assert!(note.contains("1.0000 after step 2, has no checkpoint"), "{note}");
        assert_eq!(scores(&[3.0, 1.0, 2.0], &[1, 3]).note(&output(Final::Last, None)), None);
    }

    #[test]
    fn a_loss_that_is_not_finite_is_never_the_best() {
        let nan = scores(&[f64::NAN, 2.0, f64::NAN, f64::INFINITY], &[1, 2, 3, 4]);
        assert_eq!(nan.best(), Some((2, 2.0)));
        assert_eq!(scores(&[f64::NAN], &[1]).best(), None);
        assert!(!scores(&[f64::NAN], &[]).verdict(1, &output(Final::Best, None)).saves);
    }

    #[test]
    fn a_checkpoint_follows_a_new_lowest_where_it_is_asked_for() {
        let saves = |losses: &[f64], which| {
            let before: Vec<u64> = (1..losses.len() as u64).collect();
            scores(losses, &before).verdict(losses.len() as u64, &output(which, None)).saves
        };
        assert!(saves(&[3.0], Final::Best) && saves(&[3.0, 2.0], Final::Both));
        assert!(!saves(&[3.0, 2.0], Final::Last) && !saves(&[3.0, 3.0], Final::Best));
        // The step after was not evaluated.
        assert!(!scores(&[3.0, 2.0], &[1]).verdict(3, &output(Final::Best, None)).saves);
    }

    #[test]
    fn a_run_ends_after_so_many_losses_without_a_new_lowest() {
        let ends = |losses: &[f64], most| scores(losses, &[]).ends(&output(Final::Last, most));
        assert!(!ends(&[2.0], Some(1)) && !ends(&[2.0, 3.0, 1.0], Some(1)) && !ends(&[1.0, 2.0, 3.0], None));
        assert!(ends(&[2.0, 2.0], Some(1)) && ends(&[1.0, 2.0, f64::NAN], Some(2)) && ends(&[f64::NAN], Some(1)));
        assert!(!ends(&[1.0, 2.0, 0.5, 2.0], Some(2)));
    }

    proptest! {
        /// What `metrics.jsonl` gives back is judged as what was written.
        #[test]
        fn losses_compare_alike_after_they_were_read_back(losses in prop::collection::vec(0f32..20.0, 1..20)) {
            let exact: Vec<f64> = losses.iter().map(|loss| f64::from(*loss)).collect();
            let text = serde_json::to_string(&exact).unwrap();
            let read: Vec<f64> = serde_json::from_str(&text).unwrap();
            let all: Vec<u64> = (1..=losses.len() as u64).collect();
            prop_assert_eq!(scores(&exact, &all), scores(&read, &all));
        }
    }
}
