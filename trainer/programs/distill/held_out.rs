//! The loss of data that a run does not train on: the launches of a micro-batch, and no update.

use std::collections::BTreeMap;

use precast_fatbins::Digest;
use precast_kernels::abi::step_metrics;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::record_text::finite;
use crate::device::session::Session;
use crate::inputs::data::{Chunk, Dataset, MicroBatch};
use crate::options::RunConfig;
use crate::programs::evaluate::ids_sha256;
use crate::programs::failure::Failure;
use crate::ranks::Ranks;
use crate::run::record::HELD_OUT;
use crate::run::step::{HeldOutRecord, StepRecord};

/// Data that a run does not train on, in memory whole.
pub struct HeldOut {
    /// Digest of its tokens, as `eval` has it.
    pub sha256: Digest,
    chunks: Vec<Chunk>,
    counted: u64,
}

impl HeldOut {
    pub fn new(data: &Dataset) -> Self {
        let chunks = data.chunks.clone();
        Self { sha256: ids_sha256(data), counted: chunks.iter().map(|chunk| chunk.counted() as u64).sum(), chunks }
    }

    /// Their losses under the weights as they are: a mean over all tokens that count. Ranks take micro-batches in turn, and each
    /// adds up those of all in their order, so that the sum does not depend on how many ranks there are. What the launches leave in
    /// gradients and metrics the first micro-batch of the next step overwrites.
    pub fn losses(&self, config: &RunConfig, session: &mut Session, ranks: &Ranks) -> Result<HeldOutRecord, Failure> {
        let (batch, seq_len) = (config.shape.batch_size as usize, config.shape.seq_len as usize);
        let loss_scale = (1.0 / self.counted as f64) as f32;
        let mut own: Vec<[f32; 2]> = Vec::new();
        let turns = ranks.count() as usize;
        for rows in self.chunks.chunks(batch).skip(ranks.place.rank as usize).step_by(turns) {
            session.micro(&MicroBatch::of(rows, (batch, seq_len)), loss_scale, 0)?;
            let metrics: step_metrics = bytemuck::pod_read_unaligned(&session.read(session.plan.metrics)?);
            own.push([metrics.kd_loss, metrics.ce_loss]);
        }
        let of_ranks = ranks.all_gather(bytemuck::cast_slice(&own))?;
        let of_ranks: Vec<Vec<[f32; 2]>> = of_ranks.iter().map(|said| bytemuck::pod_collect_to_vec(said)).collect();
        let micro_batches = self.chunks.len().div_ceil(batch);
        let all = (0..micro_batches).map(|index| of_ranks[index % turns][index / turns]);
        let sum = |which: usize| all.clone().map(|losses| f64::from(losses[which])).sum::<f64>() as f32;
        let metrics = step_metrics { kd_loss: sum(0), ce_loss: sum(1), ..bytemuck::Zeroable::zeroed() };
        Ok(HeldOutRecord {
            eval_loss: finite(config.loss(&metrics)),
            eval_kd_loss: finite(f64::from(metrics.kd_loss)),
            eval_ce_loss: finite(f64::from(metrics.ce_loss)),
            eval_tokens: self.counted,
        })
    }
}

/// Data and steps that held-out losses are of: those of other data do not compare. As it stands in `run.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Since {
    sha256: Digest,
    /// Those behind it.
    after_step: u64,
}

impl Since {
    /// Follows from the record of the run so far and the data now, of a run that continues after `done` steps; none where nothing was
    /// ever held out.
    pub fn of(before: Option<&Value>, sha256: Option<Digest>, done: u64) -> Option<Self> {
        let before = before.and_then(|before| Self::deserialize(before.get(HELD_OUT)?).ok());
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
        scored
            .then(|| format!("--eval-data is of other tokens: the best checkpoint is that of the steps after {passed}"))
    }
}

/// Held-out losses by step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores(BTreeMap<u64, f64>);

impl Scores {
    pub fn of<'r>(records: impl IntoIterator<Item = &'r StepRecord>) -> Self {
        let scored = records.into_iter().filter_map(|record| Some((record.step, record.held_out.as_ref()?.eval_loss?)));
        Self(scored.collect())
    }

    pub fn add(&mut self, record: &StepRecord) {
        self.0.extend(Self::of([record]).0);
    }

    /// The first of the best of these steps, and its loss; none where none was scored.
    pub fn best(&self, steps: &[u64]) -> Option<(u64, f64)> {
        let scored = steps.iter().filter_map(|step| Some((*step, *self.0.get(step)?)));
        scored.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::run::tests::steps;

    #[test]
    fn scores_of_other_data_do_not_compare() {
        let mut records = steps(&[1.0; 6], &[]);
        let of_none = HeldOutRecord { eval_loss: Some(1.0), eval_kd_loss: None, eval_ce_loss: None, eval_tokens: 1 };
        records[1].held_out = Some(of_none);
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let first = Since::of(None, Some(one), 0);
        let record = |since: Option<Since>| json!({ "held_out": since });
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
        assert_eq!(compared(Since::of(Some(&json!({})), Some(one), 1), 1), (0, None));
        assert!(compared(Since::of(Some(&json!({})), Some(one), 2), 2).1.is_some());
        // Continued from an earlier checkpoint than the change.
        assert_eq!(compared(changed, 2).0, 0);
    }

    #[test]
    fn the_first_of_the_lowest_is_best() {
        let scores = Scores([(1, 3.0), (2, 2.0), (3, 2.0), (4, 1.0)].into());
        assert_eq!(scores.best(&[1, 2, 3, 5]), Some((2, 2.0)));
        assert_eq!((scores.best(&[5]), scores.best(&[])), (None, None));
    }
}
