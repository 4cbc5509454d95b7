//! A step on what the student writes for it.

use std::sync::Arc;

use precast_plan::Micro;
use precast_runtime::Ticket;

use super::gradients;
use super::on_policy::{Mismatch, Rollout, Rollouts, pack, sums};
use super::open::Opened;
use super::ready::Ready;
use super::rollout_samples;
use super::running::Running;
use super::steps::Pending;
use crate::device::session::Session;
use crate::inputs::data::{Chunk, DataError};
use crate::options::RunConfig;
use crate::ranks::{RankError, Ranks};
use crate::run::failure::Failure;
use crate::run::guard::Guarded;
use crate::run::rollout::RolloutSums;
use crate::run::tokens;

/// The sequences of a rank in a step, and the micro-batches that they become, replica by replica.
pub(crate) struct RolloutStep {
    rollouts: Rollouts,
    packed: Vec<Vec<Vec<usize>>>,
    /// Sums over the sequences of each replica.
    pub sums: Vec<RolloutSums>,
    /// Number of the step, from 0.
    step: u64,
}

/// A step that has been asked for.
pub(crate) struct EnqueuedStep {
    /// Of its metrics.
    pub ticket: Ticket,
    pub guard: Option<Guarded>,
    /// Tokens that it scored otherwise than they were drawn.
    pub mismatch: Mismatch,
}

impl RolloutStep {
    /// Has the student write the sequences of a step, from 0, that complete prompts: the data's `rows`.
    ///
    /// # Errors
    /// [`Failure`] of the device, and of logits that are not finite.
    ///
    /// # Panics
    /// If the run is not on-policy.
    pub fn write(
        session: &mut Session,
        config: &RunConfig,
        stops: &[u32],
        (step, rows): (u64, &[Arc<Chunk>]),
    ) -> Result<Self, Failure> {
        let (micros, _) = config.division.share.micros(config.division.grad_accum.into());
        let [start, end] = [micros.start, micros.end].map(|micro| micro * u64::from(config.shape.batch_size));
        let numbered = (step * config.sequences_a_step(), start..end);
        let rollouts = Rollouts::write(session, (config, stops), rows, numbered)?;
        let shape = (config.shape.batch_size, config.shape.seq_len);
        let local = config.division.share.local();
        let places = |rollout: &Rollout| (rollout.chunk.places(), rollout.chunk.teacher);
        let packed = rollouts.replicas(local).map(|own| pack(own.iter().map(places), shape));
        let packed: Vec<Vec<Vec<usize>>> = packed.collect();
        let positions = u64::from(shape.0) * u64::from(shape.1);
        let of_replicas = rollouts.replicas(local).zip(&packed);
        let own = of_replicas.map(|(own, packed)| sums(own, stops, packed.len() as u64 * positions));
        let sums = own.map(|sums| RolloutSums { seconds: rollouts.seconds, ..sums }).collect();
        Ok(Self { sums, rollouts, packed, step })
    }

    /// Asks for the step: all of its micro-batches, of whose tokens `counted` count, and the update at a learning rate.
    /// Waits for all but the update.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn train(
        self,
        session: &mut Session,
        config: &RunConfig,
        (counted, lr): (u64, f64),
        is_guarded: bool,
    ) -> Result<EnqueuedStep, Failure> {
        let Self { rollouts, packed, step, .. } = self;
        let mut computed = Computed::default();
        computed.gradients(session, config, (&rollouts, packed, (1.0 / counted as f64) as f32), is_guarded)?;
        let ticket = session.update(step, lr)?;
        computed.check(session, &rollouts)?;
        let Computed { guard, mismatch, .. } = computed;
        Ok(EnqueuedStep { ticket, guard, mismatch })
    }
}

/// Gradients of a step's micro-batches, as far as they were asked for.
#[derive(Default)]
struct Computed {
    guard: Option<Guarded>,
    mismatch: Mismatch,
    /// The last one, whose scores have not been read.
    under_way: Option<(Vec<usize>, Ticket)>,
}

impl Running<'_> {
    /// Has the student write the sequences of a step, and asks for the step. Waits for all but the update.
    pub(super) fn enqueue_rollouts(&mut self, step: u64) -> Result<Pending, Failure> {
        let is_guarded = self.is_guarded(step);
        let Self { run: Ready { opened, session, batches, tokens, .. }, ranks, stops, taught_by, .. } = self;
        let Opened { config, models, .. } = &*opened;
        session.activity().at_step(step + 1);
        let rows = batches.step(config.data_micros())?;
        taught_by.extend(rows.rows.iter().map(|row| row.teacher));
        let written = RolloutStep::write(session, config, stops, (step, &rows.rows))?;
        let sums = summed(&written.sums, ranks)?;
        if sums.counted == 0 {
            return Err(DataError::nothing_counted(step + 1).into());
        }
        let is_kept = config.on_policy.is_some_and(|on_policy| on_policy.keeps_samples(step + 1));
        let lines = || rollout_samples::lines(&written.rollouts, step + 1, models, ranks);
        let samples = is_kept.then(lines).transpose()?;
        let lr = config.optimizer.lr_of(step, config.steps());
        let EnqueuedStep { ticket, guard, mismatch } =
            written.train(session, config, (sums.counted, lr), is_guarded)?;
        *tokens = tokens::after(*tokens, &rows);
        let mismatch = of_all(mismatch, ranks)?;
        let rollouts = Some((sums.record(mismatch.count), mismatch));
        let filled = (sums.inputs, sums.positions);
        Ok(Pending { step: step + 1, lr, tokens: sums.counted, filled, ticket, guard, rollouts, samples })
    }
}

/// Adds up the replicas of all ranks, which wrote for as long as the slowest of them.
fn summed(own: &[RolloutSums], ranks: &Ranks) -> Result<RolloutSums, RankError> {
    let said = ranks.all_gather(&serde_json::to_vec(own).expect("numbers serialize"))?;
    let malformed = |error: serde_json::Error| RankError::io("read what a rank has written")(error);
    let all = said.iter().map(|said| serde_json::from_slice::<Vec<RolloutSums>>(said).map_err(malformed));
    Ok(RolloutSums::of(&all.collect::<Result<Vec<_>, _>>()?.concat()))
}

/// Adds up the mismatches of all ranks.
fn of_all(own: Mismatch, ranks: &Ranks) -> Result<Mismatch, RankError> {
    let said = ranks.all_gather(&serde_json::to_vec(&own).expect("numbers serialize"))?;
    let malformed = |error: serde_json::Error| RankError::io("read what a rank has compared")(error);
    let all = said.iter().map(|said| serde_json::from_slice::<Mismatch>(said).map_err(malformed));
    Ok(all.collect::<Result<Vec<_>, _>>()?.into_iter().fold(Mismatch::default(), |sum, one| Mismatch {
        count: sum.count + one.count,
        first: sum.first.into_iter().chain(one.first).min(),
    }))
}

impl Computed {
    /// Asks for the gradients of a rank's sequences, replica by replica.
    fn gradients(
        &mut self,
        session: &mut Session,
        config: &RunConfig,
        (rollouts, packed, loss_scale): (&Rollouts, Vec<Vec<Vec<usize>>>, f32),
        is_guarded: bool,
    ) -> Result<(), Failure> {
        let (share, shape) = (config.division.share, (config.shape.batch_size, config.shape.seq_len));
        let each = rollouts.all.len() / share.local() as usize;
        let micros: Vec<usize> = packed.iter().map(Vec::len).collect();
        let mut packed = packed.into_iter().flatten();
        session.gradients(&micros, |session, Micro { replica, number, is_last }| {
            let mut rows = packed.next().expect("one of each micro-batch");
            rows.iter_mut().for_each(|row| *row += replica * each);
            let batch = rollouts.micro_batch(&rows, shape);
            gradients::of_micro(session, (is_guarded, &mut self.guard), (&batch, loss_scale), (number, is_last))?;
            let ticket = session.scores()?;
            self.check(session, rollouts)?;
            self.under_way = Some((rows, ticket));
            Ok(())
        })
    }

    /// Compares the scores of the micro-batch that is under way.
    fn check(&mut self, session: &mut Session, rollouts: &Rollouts) -> Result<(), Failure> {
        let Some((rows, ticket)) = self.under_way.take() else { return Ok(()) };
        self.mismatch.add(rollouts, &rows, &session.wait(ticket)?.bytes);
        Ok(())
    }
}
