//! A sealed training run on a device: weights up, steps, weights down.

use std::time::Instant;

use precast_fatbins::Digest;
use precast_kernels::Format;
use precast_kernels::abi::{micro_scalars, step_metrics, update_scalars};
use precast_plan::estimate::{self, Peak};
use precast_plan::guard::{GUARD, Sums};
use precast_plan::staged::CERTIFY;
use precast_plan::training::{CAST, CLEAR, GATHER, LAST, MICRO, TEACHER, UPDATE, WIDEN};
use precast_plan::weights::Trained;
use precast_plan::{AdapterParameter, Comparison, Fold, Parameter, Recipe, Resident, Tensor, TrainingPlan};
use precast_runtime::{CublasUse, Device, DriverError, Load, Placement, Sealed, Ticket};

use crate::base::note::note;
use crate::base::roles::Models;
use crate::base::startup::Startup;
use crate::base::stop::Stopped;
use crate::device::AnyDriver;
use crate::device::DeviceError;
use crate::device::heading::Heading;
use crate::device::host_memory::HostMemory;
use crate::device::one_memory;
use crate::device::seal::{SealedDevice, seal};
use crate::device::upload::{upload_masters, upload_model, upload_parameters, upload_staged, upload_tables};
use crate::device::watch::Watch;
use crate::device::weight_format::Chosen;
use crate::device::weight_sources::Sources;
use crate::inputs::adapter::{extent, gathered};
use crate::inputs::checkpoint::Weights;
use crate::inputs::data::MicroBatch;
use crate::options::RunConfig;
use crate::options::WeightFormat;

/// A training run, ready to step.
pub struct Session {
    plan: TrainingPlan,
    teacher_format: WeightFormat,
    sealed: SealedDevice,
    bundle: Digest,
    taken_bytes: u64,
}

impl Session {
    /// Plans, checks memory, verifies and loads kernels, seals. Nothing is uploaded yet.
    ///
    /// # Errors
    /// [`DeviceError`]: nothing has been launched.
    pub fn open(
        driver: AnyDriver,
        config: &RunConfig,
        sources: &Sources<'_>,
        placement: Placement,
        startup: &mut Startup,
    ) -> Result<Self, DeviceError> {
        let shapes = sources.shapes();
        let advise = |mut failure| {
            if let DeviceError::Memory { first, .. } | DeviceError::OneMemory { first, .. } = &mut failure
                && shapes.student_could_be_stored(config)
            {
                *first = "--student-format stored, ";
            }
            failure
        };
        let plan = shapes.plan(driver.device(), config).map_err(advise)?;
        startup.end("plan");
        Self::seal(driver, plan, config, placement, startup).map_err(advise)
    }

    /// Checks memory, verifies and loads the kernels of a plan for the driver's device, seals.
    ///
    /// # Errors
    /// [`DeviceError`]: nothing has been launched.
    pub fn seal(
        driver: AnyDriver,
        Chosen { plan, format, note: said }: Chosen<TrainingPlan>,
        config: &RunConfig,
        placement: Placement,
        startup: &mut Startup,
    ) -> Result<Self, DeviceError> {
        said.iter().for_each(note);
        let device = driver.device();
        one_memory::check(device, &plan.plan, &HostMemory::of(&plan, &config.data, device.has_one_memory()))?;
        let how = (placement, config.settings.patience);
        let (sealed, bundle, taken_bytes) =
            seal(driver, &plan.plan, &config.settings.kernels, &config.model_names(), how, startup)?;
        if let Some(peak) = Peak::reached(&sealed.device().name, plan.plan.arch) {
            let phase_s = |phase| estimate::seconds(&plan.plan, phase, &peak);
            sealed.watch.step_takes(f64::from(config.settings.grad_accum) * phase_s(MICRO) + phase_s(UPDATE));
        }
        Ok(Self { plan, teacher_format: format, sealed, bundle, taken_bytes })
    }

    /// Who ends the process if the device hangs.
    pub fn watch(&self) -> &Watch {
        &self.sealed.watch
    }

    /// How the teacher's weights live on the device.
    pub fn teacher_format(&self) -> WeightFormat {
        self.teacher_format
    }

    /// Whether a student that trains is sent as master weights. Where the run computes in the dtype in which it is stored, it
    /// is sent as it is, which halves the bytes.
    pub fn sent_wide(&self, student: &dyn Weights) -> bool {
        let weights = self.plan.student.weights.all;
        weights.trained().is_some() && student.dtype().map(Format::Dense) != Some(weights.tensor.format)
    }

    /// Where the weights of the models go, a parameter each.
    fn destinations(&self, sent_wide: bool) -> Models<Vec<(Parameter, Tensor)>> {
        let of = |model: &Resident| model.weights.list().map(|(one, weight)| (one.clone(), weight.tensor)).collect();
        let student = match sent_wide {
            true => self.plan.student.weights.states().map(|(one, _, own)| (one.clone(), own.master)).collect(),
            false => of(&self.plan.student),
        };
        Models { teacher: self.plan.teacher.as_ref().map(of), student }
    }

    /// Bytes of the models' weights that are sent.
    pub fn upload_bytes(&self, sources: &Sources<'_>) -> u64 {
        let sent_wide = self.sent_wide(sources.student);
        let sent = self.destinations(sent_wide);
        let student = Some(&self.plan.student).filter(|_| !sent_wide);
        let staged = self.plan.teacher.iter().chain(student).flat_map(|model| &model.staged);
        let staged = staged.flat_map(|staged| &staged.parts);
        sent.iter().flat_map(|(_, list)| list).chain(staged).map(|(_, tensor)| tensor.bytes()).sum()
    }

    /// Whether the teacher is not exact and [`Self::certify`] can say how far from the exact one it is.
    pub fn certifies(&self) -> bool {
        self.plan.certificate.is_some()
    }

    /// Sends the models' weights and what follows from them. The optimizer starts from zero.
    ///
    /// # Errors
    /// [`DeviceError`] of the files or the device. `progress` is told the bytes sent, and may end it.
    pub fn upload(
        &mut self,
        sources: &Sources<'_>,
        mut progress: impl FnMut(u64) -> Result<(), Stopped>,
    ) -> Result<(), DeviceError> {
        self.upload_frozen(sources, false, &mut progress)?;
        self.upload_student(sources, progress)
    }

    /// Sends all but the student, as [`Self::upload`] does, and computes a micro-batch by the teacher and by the exact one. Behind
    /// it comes [`Self::upload_student`].
    ///
    /// # Errors
    /// As [`Self::upload`].
    ///
    /// # Panics
    /// If the plan does not certify.
    pub fn certify(
        &mut self,
        sources: &Sources<'_>,
        batch: &MicroBatch,
        mut progress: impl FnMut(u64) -> Result<(), Stopped>,
    ) -> Result<Comparison<Vec<f32>>, DeviceError> {
        let certificate = self.plan.certificate.expect("a plan that certifies");
        let inputs = self.plan.inputs;
        self.sealed.write(inputs.ids, bytemuck::cast_slice(&batch.ids))?;
        self.sealed.write(inputs.targets, bytemuck::cast_slice(&batch.targets))?;
        self.upload_frozen(sources, true, &mut progress)?;
        self.sealed.run(CERTIFY)?;
        Ok(read_columns(&mut self.sealed, certificate)?)
    }

    /// Whether adapters train on a base that is quantised.
    fn has_quantised_base(&self) -> bool {
        self.plan.adapters.is_some() && !self.plan.student.staged.is_empty()
    }

    /// The teacher, and a base that is quantised. Before all else: what is quantised lies meanwhile where what trains will.
    fn upload_frozen(
        &mut self,
        sources: &Sources<'_>,
        certify: bool,
        progress: &mut impl FnMut(u64) -> Result<(), Stopped>,
    ) -> Result<(), DeviceError> {
        let teacher = self.plan.teacher.as_ref();
        if let Some((weights, teacher)) = sources.teacher.zip(teacher) {
            upload_model(&mut self.sealed, teacher, weights, certify, progress)?;
        }
        if self.has_quantised_base() {
            upload_model(
                &mut self.sealed,
                &self.plan.student,
                sources.student,
                certify && teacher.is_none(),
                progress,
            )?;
        }
        Ok(())
    }

    /// Sends the student, the adapter and what follows from them: the last part of [`Self::upload`].
    ///
    /// # Errors
    /// As [`Self::upload`].
    pub fn upload_student(
        &mut self,
        sources: &Sources<'_>,
        mut progress: impl FnMut(u64) -> Result<(), Stopped>,
    ) -> Result<(), DeviceError> {
        let student = sources.student;
        let sent_wide = self.sent_wide(student);
        let (sent, has_base) = (self.destinations(sent_wide), self.has_quantised_base());
        let sealed = &mut self.sealed;
        sealed.run(CLEAR)?;
        if !has_base {
            upload_tables(sealed, &self.plan.student, student.config())?;
        }
        // Weights that come narrow are widened on the device; the padding between them is that of the master weights.
        sealed.run(CAST)?;
        if sent_wide && !self.plan.has_whole_masters() {
            upload_masters(sealed, &self.plan, student, &mut progress)?;
        } else if !has_base {
            upload_parameters(sealed, &sent.student, student, &mut progress)?;
            if !sent_wide {
                upload_staged(sealed, &self.plan.student.staged, student, false, &mut progress)?;
            }
        }
        let Some((adapter, weights)) = sources.adapter.zip(self.plan.adapters.as_ref()) else {
            return Ok(sealed.run(if sent_wide { CAST } else { WIDEN })?);
        };
        let master = self.plan.trained().trained().expect("adapters train").master;
        for parameter in &weights.parameters.list {
            let place = master.slice(parameter.start, extent(parameter));
            sealed.write(place, bytemuck::cast_slice(&adapter.placed(parameter)?))?;
        }
        Ok(sealed.run(CAST)?)
    }

    /// Forward and backward of one micro-batch. The first of a step overwrites gradients, others add.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn micro(&mut self, batch: &MicroBatch, loss_scale: f32, accumulate: bool) -> Result<(), DriverError> {
        self.compute(MICRO, batch, loss_scale, accumulate)
    }

    /// The same of this rank's last micro-batch of a step, where there are several ranks: behind it gradients and losses are
    /// those of all.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn last(&mut self, batch: &MicroBatch, loss_scale: f32, accumulate: bool) -> Result<(), DriverError> {
        self.compute(LAST, batch, loss_scale, accumulate)
    }

    /// The teacher's own cross entropy of micro-batches, added up, each token's times `loss_scale`. What it leaves in the metrics the
    /// first micro-batch of a step overwrites. Waits for it.
    ///
    /// # Errors
    /// [`DriverError`].
    ///
    /// # Panics
    /// If there is no teacher.
    pub fn teacher_loss(&mut self, batches: &[MicroBatch], loss_scale: f32) -> Result<f32, DriverError> {
        for (index, batch) in batches.iter().enumerate() {
            self.compute(TEACHER, batch, loss_scale, index > 0)?;
        }
        let metrics: step_metrics = bytemuck::pod_read_unaligned(&self.read(self.plan.metrics)?);
        Ok(metrics.ce_loss)
    }

    fn compute(
        &mut self,
        phase: &str,
        batch: &MicroBatch,
        loss_scale: f32,
        accumulate: bool,
    ) -> Result<(), DriverError> {
        let inputs = self.plan.inputs;
        let mut words = vec![0u32; inputs.all.elems as usize];
        let mut put = |tensor: Tensor, values: &[u32]| {
            let start = (tensor.offset - inputs.all.offset) as usize / 4;
            words[start..start + values.len()].copy_from_slice(values);
        };
        put(inputs.ids, &batch.ids);
        put(inputs.targets, &batch.targets);
        put(inputs.sorted_ids, &batch.sorted_ids);
        put(inputs.sorted_positions, &batch.sorted_positions);
        let scalars = micro_scalars { loss_scale, accumulate: u32::from(accumulate) };
        put(inputs.micro, bytemuck::cast_slice(bytemuck::bytes_of(&scalars)));
        put(inputs.factors, &[1.0, f32::from(u8::from(accumulate))].map(f32::to_bits));
        self.sealed.write(inputs.all, bytemuck::cast_slice(&words))?;
        self.sealed.run(phase)
    }

    /// The gradients of each layer by products of 8 bits beside bf16's, the lowest layer first: of the first micro-batch of a step,
    /// right behind it. Waits for them.
    ///
    /// # Errors
    /// [`DriverError`].
    ///
    /// # Panics
    /// If no student trains in int8.
    pub fn guard(&mut self) -> Result<Vec<Sums>, DriverError> {
        self.sealed.run(GUARD)?;
        let guard = self.plan.guard.as_ref().expect("a student that trains in int8");
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
            reserved: 0,
        };
        self.sealed.write(self.plan.update, bytemuck::bytes_of(&scalars))?;
        self.sealed.run(UPDATE)?;
        let metrics = self.sealed.read_later(self.plan.metrics)?;
        if self.plan.shards.share().ranks > 1 {
            self.sealed.run_beside(GATHER)?;
        }
        Ok(metrics)
    }

    /// Seconds that each of `repeats` runs of a phase takes, warm, by the device's own clock.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn time(&mut self, phase: &str, repeats: u32) -> Result<f64, DriverError> {
        self.sealed.time(phase, repeats)
    }

    /// Waits for the metrics of a step, and says when it was done.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn metrics(&mut self, ticket: Ticket) -> Result<(step_metrics, Instant), DriverError> {
        let arrived = self.sealed.wait(ticket)?;
        Ok((bytemuck::pod_read_unaligned(&arrived.bytes), arrived.at))
    }

    pub fn plan(&self) -> &TrainingPlan {
        &self.plan
    }

    pub fn device(&self) -> &Device {
        self.sealed.device()
    }

    /// What the device reaches at most; none for the simulated GPU.
    pub fn limit(&self) -> Option<Peak> {
        Peak::reached(&self.device().name, self.plan.plan.arch)
    }

    /// Digest of the bundle whose kernels run.
    pub fn bundle(&self) -> Digest {
        self.bundle
    }

    /// What cuBLASLt is on the device, where it computes the products.
    pub fn cublas(&self) -> Option<CublasUse> {
        self.sealed.cublas()
    }

    /// Modules loaded, all before the seal.
    pub fn loads(&self) -> u64 {
        self.sealed.loads()
    }

    /// The same, in the order in which they were loaded.
    pub fn loaded(&self) -> &[Load] {
        self.sealed.loaded()
    }

    /// How many ranks there are and by what they exchange; none where there is one.
    pub fn ranks(&self) -> Option<String> {
        self.sealed.ranks()
    }

    /// How long launches have waited for exchanges so far, by the device's clock, seconds; none where nothing runs beside them.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn waited_s(&mut self) -> Result<Option<f64>, DriverError> {
        self.sealed.waited_s()
    }

    /// What a run says first.
    pub fn heading(&self) -> Heading {
        Heading::new(self.device(), self.bundle, self.loaded().len()).cublas(self.cublas()).ranks(self.ranks())
    }

    /// Modules that the driver loaded after the seal: none.
    pub fn loads_after_seal(&self) -> u64 {
        self.sealed.loads_after_seal()
    }

    /// Device memory that disappeared while everything was loaded and taken, bytes.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// A parameter's fp32 master weights.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn master(&mut self, parameter: &Parameter) -> Result<Vec<u8>, DriverError> {
        self.read(self.trained_of(parameter).master)
    }

    /// A parameter's gradient, f32, before clipping.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn gradient(&mut self, parameter: &Parameter) -> Result<Vec<u8>, DriverError> {
        self.read(self.trained_of(parameter).grad)
    }

    /// The matrices of the adapter that trains; none where the student itself does.
    pub fn adapter_parameters(&self) -> Vec<AdapterParameter> {
        self.plan.adapters.as_ref().map(|adapters| adapters.parameters.list.clone()).unwrap_or_default()
    }

    /// The master weights of a matrix of the adapter, row by row.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn adapter_master(&mut self, parameter: &AdapterParameter) -> Result<Vec<f32>, DriverError> {
        self.adapter(parameter, self.trained().master)
    }

    /// The gradient of a matrix of the adapter, row by row, before clipping.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn adapter_gradient(&mut self, parameter: &AdapterParameter) -> Result<Vec<f32>, DriverError> {
        self.adapter(parameter, self.trained().grad)
    }

    fn adapter(&mut self, parameter: &AdapterParameter, of: Tensor) -> Result<Vec<f32>, DriverError> {
        let placed = self.read(of.slice(parameter.start, extent(parameter)))?;
        Ok(gathered(parameter, &bytemuck::pod_collect_to_vec::<u8, f32>(&placed)))
    }

    /// Does what becomes of the gradients of a replica.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn fold(&mut self, fold: Fold) -> Result<(), DriverError> {
        self.sealed.run(&fold.phase())
    }

    /// Elements of each of the tensors of [`Self::state`], on all ranks.
    pub fn state_elems(&self) -> u64 {
        self.plan.shards.elems()
    }

    /// What the optimizer keeps: master weights, first and second moments, flat, f32: the pieces that this rank updates, each with
    /// where it begins.
    pub fn state(&self) -> [(&'static str, Vec<(u64, Tensor)>); 3] {
        let Trained { master, m, v, .. } = self.trained();
        let whole = self.plan.has_whole_masters();
        let own = self.plan.shards.own();
        let masters = own
            .iter()
            .map(|piece| (piece.start, master.slice(if whole { piece.start } else { piece.local }, piece.elems)));
        let masters = masters.collect();
        let pieces = |of: Tensor| own.iter().map(|piece| (piece.start, of.slice(piece.local, piece.elems))).collect();
        [("master", masters), ("m", pieces(m)), ("v", pieces(v))]
    }

    /// Where a checkpoint's tensors go on this rank: as [`Self::state`], and all master weights where it has them all.
    pub fn restored_state(&self) -> [(&'static str, Vec<(u64, Tensor)>); 3] {
        let [mut masters, m, v] = self.state();
        if self.plan.has_whole_masters() {
            masters.1 = vec![(0, self.trained().master)];
        }
        [masters, m, v]
    }

    /// Whether the master weights of this rank are all of them.
    pub fn has_whole_masters(&self) -> bool {
        self.plan.has_whole_masters()
    }

    /// The weights that launches read, of a parameter.
    pub fn working(&self, parameter: &Parameter) -> Tensor {
        let weight = self.plan.student.weights.of(parameter);
        weight.unwrap_or_else(|| panic!("{} is no parameter of the student", parameter.name)).tensor
    }

    /// What the optimizer has of all that trains: the student, or its adapter.
    fn trained(&self) -> Trained {
        self.plan.trained().trained().expect("something trains")
    }

    /// Elements that train.
    pub fn trained_count(&self) -> u64 {
        match &self.plan.adapters {
            Some(adapters) => adapters.parameters.list.iter().map(|one| one.shape.iter().product::<u64>()).sum(),
            None => self.plan.student.weights.parameters.count(),
        }
    }

    /// Elements of the student and of its adapter, if it has one.
    pub fn all_count(&self) -> u64 {
        let of_student = self.plan.student.weights.parameters.count();
        if self.plan.adapters.is_some() { of_student + self.trained_count() } else { of_student }
    }

    /// What the optimizer has of a parameter of the student.
    ///
    /// # Panics
    /// If the student has no such parameter, or an adapter trains in its place.
    pub fn trained_of(&self, parameter: &Parameter) -> Trained {
        let found = self.plan.student.weights.states().find(|(one, ..)| *one == parameter);
        found.unwrap_or_else(|| panic!("{} is no parameter of the student", parameter.name)).2
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn read(&mut self, tensor: Tensor) -> Result<Vec<u8>, DriverError> {
        self.sealed.read(tensor)
    }

    /// The bytes of a tensor, part by part: the host holds two parts, however large it is.
    ///
    /// # Errors
    /// [`DriverError`], and those of `take`.
    pub fn read_parts<E: From<DriverError>>(
        &mut self,
        tensor: Tensor,
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.sealed.read_parts(tensor, take)
    }

    /// Replaces what a tensor holds.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn write(&mut self, tensor: Tensor, bytes: &[u8]) -> Result<(), DriverError> {
        self.sealed.write(tensor, bytes)
    }

    /// Makes the working copy of what [`Self::write`] has put into the tensors of [`Self::state`].
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn restored(&mut self) -> Result<(), DriverError> {
        self.sealed.run(CAST)
    }
}

/// What a comparison gives, a value each token.
pub(crate) fn read_columns(
    sealed: &mut Sealed,
    columns: Comparison<Tensor>,
) -> Result<Comparison<Vec<f32>>, DriverError> {
    columns.try_map(|column| Ok(bytemuck::pod_collect_to_vec(&sealed.read(column)?)))
}
