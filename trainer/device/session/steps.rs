//! The steps of training, phase by phase.

use std::mem::offset_of;
use std::time::Instant;

use precast_kernels::abi::{micro_scalars, step_metrics, update_scalars};
use precast_plan::guard::{GUARD, Sums};
use precast_plan::training::{
    GATHER, LAST, MASTERS, MICRO, TEACHER, TaughtInputs, TeacherBuffers, TeacherPass, UPDATE, of_teacher, pass_phase,
};
use precast_plan::{GradientPart, Micro, Recipe, Routes, Tensor};
use precast_runtime::{DriverError, Ticket};

use crate::device::DeviceError;
use crate::inputs::data::{MicroBatch, Taught};

use super::Session;

impl Session {
    /// Returns the rows that each expert of a teacher's last layer has read of the micro-batch before; none without
    /// experts. Waits for them.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn expert_rows(&mut self, teacher: usize) -> Result<Option<Vec<u64>>, DriverError> {
        let routes = self.plan.teachers[teacher].model().and_then(|model| model.routes);
        let tokens = self.plan.inputs.ids.elems as u32;
        let read = |routes: Routes| {
            let counts = bytemuck::pod_collect_to_vec(&self.sealed.read(routes.counts(tokens))?);
            Ok(routes.rows_of_experts(&counts))
        };
        routes.map(read).transpose()
    }

    /// Computes the teacher for the micro-batches of a pass, if it computes several at a time and a pass begins with
    /// this one, by its `index`. A micro-batch of no pass is computed in one of its own.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn begin_pass<I: Iterator<Item = MicroBatch>>(
        &mut self,
        index: usize,
        following: impl FnOnce() -> I,
    ) -> Result<(), DriverError> {
        let Some(pass) = self.plan.pass.filter(|pass| index.is_multiple_of(pass.micros as usize)) else {
            return Ok(());
        };
        self.pass(pass, following().take(pass.micros as usize).collect())
    }

    fn pass(&mut self, pass: TeacherPass, batches: Vec<MicroBatch>) -> Result<(), DriverError> {
        let seq_len = pass.sequences.seq_len();
        let mut ids: Vec<u32> = batches.iter().flat_map(|batch| batch.ids.iter().copied()).collect();
        let mut lengths: Vec<u32> = batches.iter().flat_map(|batch| batch.lengths.iter().copied()).collect();
        let left = pass.ids.elems as usize - ids.len();
        // Micro-batches that are missing are sequences of padding.
        ids.resize(pass.ids.elems as usize, 0);
        lengths.extend(std::iter::repeat_n(seq_len, left / seq_len as usize));
        let mut words = vec![0u32; pass.all.elems as usize];
        let mut put = |tensor: Tensor, values: &[u32]| {
            let start = (tensor.offset - pass.all.offset) as usize / 4;
            words[start..start + values.len()].copy_from_slice(values);
        };
        put(pass.ids, &ids);
        put(pass.sequences.all, &pass.sequences.words(&lengths));
        self.sealed.write(pass.all, bytemuck::cast_slice(&words))?;
        self.passed = batches.into_iter().map(|batch| (batch.ids, batch.lengths)).collect();
        self.sealed.run(&pass_phase(pass.micros))
    }

    /// Returns the place of a micro-batch in the teacher's pass, which begins if it is in none.
    fn place_in(&mut self, pass: TeacherPass, batch: &MicroBatch) -> Result<u32, DriverError> {
        let is_batch = |(ids, lengths): &(Vec<u32>, Vec<u32>)| *ids == batch.ids && *lengths == batch.lengths;
        match self.passed.iter().position(is_batch) {
            Some(place) => Ok(place as u32),
            None => self.pass(pass, vec![batch.clone()]).map(|()| 0),
        }
    }

    /// Forward and backward of one micro-batch, by its `number` in the replica: 0 overwrites gradients, others add.
    ///
    /// # Errors
    /// [`DeviceError`] of the device, and of the cache of a teacher.
    pub fn micro(&mut self, batch: &MicroBatch, loss_scale: f32, number: usize) -> Result<(), DeviceError> {
        self.compute(MICRO, batch, loss_scale, number)
    }

    /// As [`Self::micro`], the last one of a rank where there are several: leaves gradients and losses of all.
    ///
    /// # Errors
    /// Those of [`Self::micro`].
    pub fn last(&mut self, batch: &MicroBatch, loss_scale: f32, number: usize) -> Result<(), DeviceError> {
        self.compute(LAST, batch, loss_scale, number)
    }

    /// Asks for the gradients of a rank's replicas, of so many micro-batches each, and folds them. `compute` asks for a
    /// micro-batch.
    ///
    /// # Errors
    /// [`DriverError`], and those of `compute`.
    pub fn gradients<E: From<DriverError>>(
        &mut self,
        micros: &[usize],
        mut compute: impl FnMut(&mut Self, Micro) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in self.plan.shards.share().parts(micros) {
            match part {
                GradientPart::Micro(micro) => compute(self, micro)?,
                GradientPart::Fold(fold) => self.sealed.run(&fold.phase())?,
            }
        }
        Ok(())
    }

    /// Starts to read the scores that the micro-batch before has left: [`precast_plan::Scores::all`].
    ///
    /// # Errors
    /// [`DriverError`].
    ///
    /// # Panics
    /// If the plan is of no on-policy run.
    pub fn scores(&mut self) -> Result<Ticket, DriverError> {
        self.sealed.read_later(self.plan.scores.expect("an on-policy plan").all)
    }

    /// The own cross entropy of micro-batches' teacher, added up, each token's times `loss_scale`. What it leaves in
    /// the metrics the first micro-batch of a step overwrites. Waits for it.
    ///
    /// # Errors
    /// Those of [`Self::micro`].
    ///
    /// # Panics
    /// If there is no teacher.
    pub fn teacher_loss(&mut self, batches: &[MicroBatch], loss_scale: f32) -> Result<f32, DeviceError> {
        for (number, batch) in batches.iter().enumerate() {
            self.compute(TEACHER, batch, loss_scale, number)?;
        }
        // Nothing has written the others before the first update.
        let place = (offset_of!(step_metrics, ce_loss) / size_of::<f32>()) as u64;
        Ok(bytemuck::pod_read_unaligned(&self.read(self.plan.metrics.slice(place, 1))?))
    }

    fn compute(&mut self, phase: &str, batch: &MicroBatch, loss_scale: f32, number: usize) -> Result<(), DeviceError> {
        let inputs = self.plan.inputs;
        // The teacher alone takes no part in passes.
        let pass = self.plan.pass.zip(inputs.in_pass).filter(|_| phase != TEACHER);
        let place = pass.map(|(pass, _)| self.place_in(pass, batch)).transpose()?;
        let mut words = vec![0u32; inputs.all.elems as usize];
        let mut put = |tensor: Tensor, values: &[u32]| {
            let start = (tensor.offset - inputs.all.offset) as usize / 4;
            words[start..start + values.len()].copy_from_slice(values);
        };
        put(inputs.ids, &batch.ids);
        put(inputs.targets, &batch.targets);
        put(inputs.sorted_ids, &batch.sorted_ids);
        put(inputs.sorted_positions, &batch.sorted_positions);
        put(inputs.sequences.all, &inputs.sequences.words(&batch.lengths));
        if let Some(TaughtInputs { ids, places, sequences }) = inputs.taught {
            let same = || Taught {
                ids: batch.ids.clone(),
                places: (0..batch.ids.len() as u32).collect(),
                lengths: batch.lengths.clone(),
            };
            let taught = batch.taught.clone().unwrap_or_else(same);
            put(ids, &taught.ids);
            put(places, &taught.places);
            put(sequences.all, &sequences.words(&taught.lengths));
        }
        if let Some((tensor, place)) = inputs.in_pass.zip(place) {
            let first = place * tensor.elems as u32;
            put(tensor, &(first..first + tensor.elems as u32).collect::<Vec<u32>>());
        }
        let accumulate = u8::from(number > 0);
        let scalars = micro_scalars { loss_scale, accumulate: accumulate.into() };
        put(inputs.micro, bytemuck::cast_slice(bytemuck::bytes_of(&scalars)));
        put(inputs.factors, &[1.0, accumulate.into()].map(f32::to_bits));
        self.sealed.write(inputs.all, bytemuck::cast_slice(&words))?;
        let hidden = self.hidden.get_mut(batch.teacher).and_then(Option::as_mut);
        let cached = self.plan.teachers.get(batch.teacher).and_then(TeacherBuffers::cached);
        if let Some((hidden, cached)) = hidden.zip(cached) {
            for (input, rows) in cached.inputs().into_iter().zip(hidden.of_batch(batch)?) {
                self.sealed.write(input, rows)?;
            }
        }
        self.taught_by = batch.teacher;
        Ok(self.sealed.run(&of_teacher(phase, batch.teacher))?)
    }

    /// The gradients of each layer by products of 8 bits beside bf16's, the lowest layer first: of the first
    /// micro-batch of a step, right behind it. Waits for them.
    ///
    /// # Errors
    /// [`DriverError`].
    ///
    /// # Panics
    /// If no student trains in int8.
    pub fn guard(&mut self) -> Result<Vec<Sums>, DriverError> {
        self.sealed.run(&of_teacher(GUARD, self.taught_by))?;
        let guard = self.plan.guards.get(self.taught_by).expect("a student that trains in int8");
        Ok(guard.sums(&bytemuck::pod_collect_to_vec(&self.sealed.read(guard.partials)?)))
    }

    /// Norm, clip and AdamW with the learning rate and bias corrections of `step` (from 0). The metrics
    /// arrive later.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn update(&mut self, step: u64, lr: f64) -> Result<Ticket, DriverError> {
        let exponent = (step + 1) as i32;
        let correction = |beta: f32| (1.0 - f64::from(beta).powi(exponent)) as f32;
        let scalars = update_scalars {
            lr: lr as f32,
            bias_correction1: correction(Recipe::BETA1),
            bias_correction2: correction(Recipe::BETA2),
            step: (step + 1) as u32,
        };
        self.sealed.write(self.plan.update, bytemuck::bytes_of(&scalars))?;
        self.sealed.run(UPDATE)?;
        let metrics = self.sealed.read_later(self.plan.metrics)?;
        if self.plan.shards.share().ranks > 1 {
            self.sealed.run_beside(GATHER)?;
        }
        Ok(metrics)
    }

    /// Collects the master weights of all ranks, if the result needs them: every rank calls it, behind the last step.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn collect_masters(&mut self) -> Result<(), DriverError> {
        if self.plan.collects_masters() { self.sealed.run(MASTERS) } else { Ok(()) }
    }

    /// Waits for the metrics of a step, and says when it was done.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn metrics(&mut self, ticket: Ticket) -> Result<(step_metrics, Instant), DriverError> {
        let arrived = self.sealed.wait(ticket)?;
        Ok((bytemuck::pod_read_unaligned(&arrived.bytes), arrived.at))
    }
}
