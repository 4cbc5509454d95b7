//! The loss of data that a run does not train on: the launches of a micro-batch, and no update.

use std::collections::BTreeMap;

use precast_kernels::abi::step_metrics;

use crate::config::RunConfig;
use crate::data::{Chunk, Dataset, MicroBatch};
use crate::error::Failure;
use crate::metrics::{HeldOutRecord, StepRecord, finite};
use crate::ranks::Ranks;
use crate::session::Session;

/// Data that a run does not train on, in memory whole.
pub struct HeldOut {
    chunks: Vec<Chunk>,
    counted: u64,
}

impl HeldOut {
    pub fn new(data: &Dataset) -> Self {
        let chunks = data.chunks().to_vec();
        Self { counted: chunks.iter().map(|chunk| chunk.counted() as u64).sum(), chunks }
    }

    /// Their losses under the weights as they are: a mean over all tokens that count. Ranks take micro-batches in turn, and each
    /// adds up those of all in their order, so that the sum does not depend on how many ranks there are. What the launches leave in
    /// gradients and metrics the first micro-batch of the next step overwrites.
    pub fn losses(&self, config: &RunConfig, session: &mut Session, ranks: &Ranks) -> Result<HeldOutRecord, Failure> {
        let (batch, seq_len) = (config.settings.batch_size as usize, config.settings.seq_len as usize);
        let loss_scale = (1.0 / self.counted as f64) as f32;
        let padding = Chunk::plain([]);
        let mut own: Vec<[f32; 2]> = Vec::new();
        let turns = ranks.count() as usize;
        for rows in self.chunks.chunks(batch).skip(ranks.place().rank as usize).step_by(turns) {
            let mut rows: Vec<&Chunk> = rows.iter().collect();
            rows.resize(batch, &padding);
            session.micro(&MicroBatch::of(rows.into_iter(), seq_len), loss_scale, false)?;
            let metrics: step_metrics = bytemuck::pod_read_unaligned(&session.read(session.plan().metrics)?);
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
    use super::*;

    #[test]
    fn the_first_of_the_lowest_is_best() {
        let scores = Scores([(1, 3.0), (2, 2.0), (3, 2.0), (4, 1.0)].into());
        assert_eq!(scores.best(&[1, 2, 3, 5]), Some((2, 2.0)));
        assert_eq!((scores.best(&[5]), scores.best(&[])), (None, None));
    }
}
