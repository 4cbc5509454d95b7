//! Training steps on random tokens or rows of data, of models that may be a bare `config.json`.

use std::time::Instant;

use precast_runtime::Ticket;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::device::DeviceError;
use crate::device::session::{HiddenStates, Session};
use crate::inputs::data::{MicroBatch, Step};
use crate::options::ShapeOptions;

/// Seeds of models that are a bare `config.json`.
pub(crate) const RANDOM_SEEDS: [u64; 2] = [1, 2];

/// Steps that leave the weights as they are: their learning rate is 0.
pub struct Steps {
    /// Micro-batches of each, which repeat.
    steps: Vec<Vec<MicroBatch>>,
    /// In a step of random tokens.
    sequences: usize,
    done: u64,
}

impl Steps {
    /// Draws tokens below a vocabulary, the same for every step and every machine. Where the teacher is cached, their
    /// rows are those of the cache's sequences in turn.
    pub fn new(
        session: &mut Session,
        ShapeOptions { batch_size, seq_len }: ShapeOptions,
        accum: u32,
        vocab: u32,
    ) -> Self {
        session.hidden.iter_mut().flatten().for_each(HiddenStates::in_turn);
        let mut rng = Pcg64Mcg::seed_from_u64(0);
        let mut row = || (0..=seq_len).map(|_| rng.random_range(0..vocab)).collect::<Vec<u32>>();
        let micros = (0..accum).map(|_| {
            let rows: Vec<Vec<u32>> = (0..batch_size).map(|_| row()).collect();
            MicroBatch::new(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>(), seq_len as usize)
        });
        let micros: Vec<MicroBatch> = micros.collect();
        Self { steps: vec![micros], sequences: (batch_size * accum) as usize, done: 0 }
    }

    /// Lays steps of data out.
    pub fn of(steps: &[Step]) -> Self {
        let of_step = |step: &Step| (0..step.micros()).map(|number| step.micro_batch(number)).collect();
        Self { steps: steps.iter().map(of_step).collect(), sequences: 0, done: 0 }
    }

    /// Asks for a step.
    fn enqueue(&mut self, session: &mut Session) -> Result<Ticket, DeviceError> {
        for hidden in session.hidden.iter().flatten() {
            hidden.read_ahead_in_turn(self.sequences);
        }
        let micros = &self.steps[self.done as usize % self.steps.len()];
        let counted: u64 = micros.iter().map(|micro| u64::from(micro.counted)).sum();
        for (index, micro) in micros.iter().enumerate() {
            session.begin_pass(index, || micros[index..].iter().cloned())?;
            session.micro(micro, (1.0 / counted as f64) as f32, index)?;
        }
        self.done += 1;
        Ok(session.update(self.done - 1, 0.0)?)
    }

    /// One step, waited for.
    pub fn one(&mut self, session: &mut Session) -> Result<(), DeviceError> {
        let ticket = self.enqueue(session)?;
        Ok(session.metrics(ticket).map(drop)?)
    }

    /// Seconds of each of `count` steps, which follow each other as in a run: the metrics of a step are read while the
    /// next one runs.
    pub fn time(&mut self, session: &mut Session, count: u64) -> Result<Vec<f64>, DeviceError> {
        let mut pending = self.enqueue(session)?;
        let mut ends: Vec<Instant> = Vec::new();
        for _ in 0..count {
            let next = self.enqueue(session)?;
            ends.push(session.metrics(std::mem::replace(&mut pending, next))?.1);
        }
        ends.push(session.metrics(pending)?.1);
        Ok(ends.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect())
    }
}
