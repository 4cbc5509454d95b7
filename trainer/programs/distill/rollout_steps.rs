//! A step on what the student writes for it.

use precast_plan::SequenceLength;
use precast_runtime::Ticket;

use super::on_policy::{Mismatch, Packed, Rollout, Rollouts, pack, sums};
use super::open::Opened;
use super::ready::Ready;
use super::running::Running;
use super::steps::Pending;
use crate::device::session::Session;
use crate::inputs::data::DataError;
use crate::options::RunConfig;
use crate::programs::failure::Failure;
use crate::ranks::{RankError, Ranks};
use crate::run::guard::{Guarded, LayerDistance};
use crate::run::rollout::RolloutSums;
use crate::run::tokens;

/// Gradients of a step's micro-batches, as far as they were asked for.
#[derive(Default)]
struct Computed {
    guard: Option<Guarded>,
    mismatch: Mismatch,
    /// The last one, whose scores have not been read.
    under_way: Option<(Packed, Ticket)>,
}

impl Running<'_> {
    /// Has the student write the sequences of a step, and asks for the step: all of its micro-batches and the update. Waits for all
    /// but the update.
    pub(super) fn enqueue_rollouts(&mut self, step: u64) -> Result<Pending, Failure> {
        let is_guarded = self.is_guarded(step);
        let Self { run: Ready { opened: Opened { config, .. }, session, batches, tokens, .. }, ranks, stops, .. } =
            self;
        session.activity().at_step(step + 1);
        let rows = batches.step(config.data_micros())?;
        let (micros, _) = config.division.share.micros(config.division.grad_accum.into());
        let [start, end] = [micros.start, micros.end].map(|micro| micro * u64::from(config.shape.batch_size));
        let numbered = (step * config.sequences_a_step(), start..end);
        let rollouts = Rollouts::write(session, (config, stops), &rows.rows, numbered)?;
        let shape = (config.shape.batch_size, config.shape.seq_len);
        let lengths: Vec<SequenceLength> = SequenceLength::of(&config.recipe()).collect();
        let local = config.division.share.local();
        let packed = rollouts.replicas(local).map(|own| pack(own.iter().map(Rollout::positions), shape, &lengths));
        let packed: Vec<Vec<Packed>> = packed.collect();
        let positions = u64::from(shape.0) * u64::from(shape.1);
        let of_replicas = rollouts.replicas(local).zip(&packed);
        let own = of_replicas.map(|(own, packed)| sums(own, stops, packed.len() as u64 * positions));
        let sums = summed(own.collect(), rollouts.seconds, ranks)?;
        if sums.counted == 0 {
            return Err(DataError::nothing_counted(step + 1).into());
        }
        let mut computed = Computed::default();
        computed.gradients(session, config, (&rollouts, packed, (1.0 / sums.counted as f64) as f32), is_guarded)?;
        let lr = config.optimizer.lr_of(step, config.steps());
        let ticket = session.update(step, lr)?;
        computed.check(session, &rollouts, config.shape.seq_len)?;
        *tokens = tokens::after(*tokens, &rows);
        let Computed { guard, mismatch, .. } = computed;
        let mismatch = of_all(mismatch, ranks)?;
        let rollouts = Some((sums.record(mismatch.count), mismatch.first));
        Ok(Pending { step: step + 1, lr, tokens: sums.counted, ticket, guard, rollouts })
    }
}

/// Adds up the replicas of all ranks, which wrote for as long as the slowest of them.
fn summed(mut own: Vec<RolloutSums>, seconds: f64, ranks: &Ranks) -> Result<RolloutSums, RankError> {
    own.iter_mut().for_each(|sums| sums.seconds = seconds);
    let said = ranks.all_gather(&serde_json::to_vec(&own).expect("numbers serialize"))?;
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
        (rollouts, packed, loss_scale): (&Rollouts, Vec<Vec<Packed>>, f32),
        is_guarded: bool,
    ) -> Result<(), Failure> {
        let (share, shape) = (config.division.share, (config.shape.batch_size, config.shape.seq_len));
        let each = rollouts.all.len() / share.local() as usize;
        if is_guarded {
            // Of whole sequences: the first micro-batch overwrites what it leaves.
            let first = Packed { length: SequenceLength::Whole, rows: (0..each.min(shape.0 as usize)).collect() };
            session.micro(&rollouts.micro_batch(&first, shape), loss_scale, 0)?;
            self.guard = Some(Guarded(session.guard()?.into_iter().map(LayerDistance::of).collect()));
        }
        for (replica, packed) in packed.into_iter().enumerate() {
            let is_last = share.ranks > 1 && replica + 1 == share.local() as usize;
            let count = packed.len();
            for (number, mut packed) in packed.into_iter().enumerate() {
                packed.rows.iter_mut().for_each(|row| *row += replica * each);
                let batch = rollouts.micro_batch(&packed, shape);
                let last = is_last && number + 1 == count;
                session.micro_of((packed.length, last), &batch, loss_scale, number)?;
                let ticket = session.scores()?;
                self.check(session, rollouts, shape.1)?;
                self.under_way = Some((packed, ticket));
            }
            if let Some(fold) = share.fold(replica as u32).filter(|_| !is_last) {
                session.run(&fold.phase())?;
            }
        }
        Ok(())
    }

    /// Compares the scores of the micro-batch that is under way.
    fn check(&mut self, session: &mut Session, rollouts: &Rollouts, seq_len: u32) -> Result<(), Failure> {
        let Some((packed, ticket)) = self.under_way.take() else { return Ok(()) };
        self.mismatch.add(rollouts, &packed, seq_len, &session.wait(ticket)?.bytes);
        Ok(())
    }
}
