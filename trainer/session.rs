//! A sealed training run on a device: weights up, steps, weights down.

use std::time::Instant;

use precast_fatbins::Digest;
use precast_kernels::Format;
use precast_kernels::abi::{micro_scalars, step_metrics, update_scalars};
use precast_plan::estimate::Peak;
use precast_plan::training::{CAST, CLEAR, MICRO, UPDATE, WIDEN};
use precast_plan::weights::Trained;
use precast_plan::{
    Formats, MemoryTable, ModelConfig, Parameter, Recipe, Resident, Tensor, TrainingPlan, Weight, rope,
};
use precast_runtime::{Device, Load, Loading, Placement, Sealed, Ticket};

use crate::bundle::Kernels;
use crate::checkpoint::{Scratch, Weights};
use crate::config::RunConfig;
use crate::data::MicroBatch;
use crate::device::{self, AnyDriver};
use crate::error::Failure;
use crate::heading::Heading;
use crate::startup::Startup;
use crate::weight_format::{Choice, Chosen, WeightFormat};

/// A training run, ready to step.
pub struct Session {
    plan: TrainingPlan,
    teacher_format: WeightFormat,
    sealed: Sealed<AnyDriver>,
    bundle: Digest,
    taken_bytes: u64,
}

impl Session {
    /// Plans, checks memory, verifies and loads kernels, seals. Nothing is uploaded yet.
    ///
    /// # Errors
    /// [`Failure`]: nothing has been launched.
    pub fn open(
        driver: AnyDriver,
        config: &RunConfig,
        teacher: Option<&dyn Weights>,
        student: &dyn Weights,
        placement: Placement,
        startup: &mut Startup,
    ) -> Result<Self, Failure> {
        let formats = teacher.map(Weights::formats).unwrap_or_default();
        let teacher = teacher.map(|weights| (weights.config(), &formats));
        let plan = plan(driver.device(), config, teacher, student.config())?;
        startup.end("plan");
        Self::seal(driver, plan, config, placement, startup)
    }

    /// Checks memory, verifies and loads the kernels of a plan for the driver's device, seals.
    ///
    /// # Errors
    /// [`Failure`]: nothing has been launched.
    pub fn seal(
        driver: AnyDriver,
        Chosen { plan, format, note }: Chosen<TrainingPlan>,
        config: &RunConfig,
        placement: Placement,
        startup: &mut Startup,
    ) -> Result<Self, Failure> {
        note.iter().for_each(|note| eprintln!("note: {note}"));
        let models: Vec<String> = config.models().iter().map(|(_, path)| path.display().to_string()).collect();
        let (sealed, bundle, taken_bytes) =
            seal(driver, &plan.plan, &config.settings.kernels, &models, placement, startup)?;
        Ok(Self { plan, teacher_format: format, sealed, bundle, taken_bytes })
    }

    /// How the teacher's weights live on the device.
    pub fn teacher_format(&self) -> WeightFormat {
        self.teacher_format
    }

    /// Where a student's weights are sent: as they are stored where the run computes in that dtype, which halves the
    /// bytes, else as master weights.
    pub fn destination(&self, student: &dyn Weights) -> Tensor {
        let weights = self.plan.student.weights.all.tensor;
        match student.dtype().map(Format::Dense) == Some(weights.format) {
            true => weights,
            false => self.trained().master,
        }
    }

    /// Sends the models' weights and what follows from them. The optimizer starts from zero.
    ///
    /// # Errors
    /// [`Failure`] of the files or the device. `progress` is told the bytes sent, and may end it.
    pub fn upload(
        &mut self,
        teacher: Option<&dyn Weights>,
        student: &dyn Weights,
        mut progress: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.sealed.run(CLEAR)?;
        if let (Some(weights), Some(teacher)) = (teacher, &self.plan.teacher) {
            upload_tables(&mut self.sealed, teacher, weights.config())?;
            let list = teacher.weights.list().map(|(parameter, weight)| (parameter, weight.tensor));
            upload_parameters(&mut self.sealed, list, weights, &mut progress)?;
        }
        upload_tables(&mut self.sealed, &self.plan.student, student.config())?;
        // Weights that come narrow are widened on the device; the padding between them is that of the master weights.
        self.sealed.run(CAST)?;
        let master = self.trained().master;
        let sent_wide = self.destination(student) == master;
        let place = |weight: Weight| weight.trained().filter(|_| sent_wide).map_or(weight.tensor, |own| own.master);
        let list = self.plan.student.weights.list().map(|(parameter, weight)| (parameter, place(weight)));
        upload_parameters(&mut self.sealed, list, student, &mut progress)?;
        Ok(self.sealed.run(if sent_wide { CAST } else { WIDEN })?)
    }

    /// Forward and backward of one micro-batch. The first of a step overwrites gradients, others add.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn micro(&mut self, batch: &MicroBatch, loss_scale: f32, accumulate: bool) -> Result<(), Failure> {
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
        self.sealed.write(inputs.all, bytemuck::cast_slice(&words))?;
        Ok(self.sealed.run(MICRO)?)
    }

    /// Norm, clip and AdamW with the learning rate and bias corrections of `step` (from 0). The metrics
    /// arrive later.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn update(&mut self, step: u64, lr: f64) -> Result<Ticket, Failure> {
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
        Ok(self.sealed.read_later(self.plan.metrics)?)
    }

    /// Seconds that each of `repeats` runs of a phase takes, warm, by the device's own clock.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn time(&mut self, phase: &str, repeats: u32) -> Result<f64, Failure> {
        Ok(self.sealed.time(phase, repeats)?)
    }

    /// Waits for the metrics of a step, and says when it was done.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn metrics(&mut self, ticket: Ticket) -> Result<(step_metrics, Instant), Failure> {
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

    /// Modules loaded, all before the seal.
    pub fn loads(&self) -> u64 {
        self.sealed.loads()
    }

    /// The same, in the order in which they were loaded.
    pub fn loaded(&self) -> &[Load] {
        self.sealed.loaded()
    }

    /// What a run says first.
    pub fn heading(&self) -> Heading {
        Heading::new(self.device(), self.bundle, self.loaded().len())
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
    /// [`Failure`] of the device.
    pub fn master(&mut self, parameter: &Parameter) -> Result<Vec<u8>, Failure> {
        self.read(self.trained_of(parameter).master)
    }

    /// A parameter's gradient, f32, before clipping.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn gradient(&mut self, parameter: &Parameter) -> Result<Vec<u8>, Failure> {
        self.read(self.trained_of(parameter).grad)
    }

    /// What the optimizer keeps: master weights, first and second moments, flat, f32.
    pub fn state(&self) -> [(&'static str, Tensor); 3] {
        let Trained { master, m, v, .. } = self.trained();
        [("master", master), ("m", m), ("v", v)]
    }

    /// What the optimizer has of the whole student.
    fn trained(&self) -> Trained {
        self.plan.student.weights.all.trained().expect("the student trains")
    }

    /// What the optimizer has of a parameter of the student.
    ///
    /// # Panics
    /// If the student has no such parameter.
    pub fn trained_of(&self, parameter: &Parameter) -> Trained {
        let weight = self.plan.student.weights.of(parameter).and_then(Weight::trained);
        weight.unwrap_or_else(|| panic!("{} is no parameter of the student", parameter.name))
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn read(&mut self, tensor: Tensor) -> Result<Vec<u8>, Failure> {
        Ok(self.sealed.read(tensor)?)
    }

    /// The bytes of a tensor, part by part: the host holds two parts, however large it is.
    ///
    /// # Errors
    /// [`Failure`] of the device, or of `take`.
    pub fn read_parts(
        &mut self,
        tensor: Tensor,
        take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.sealed.read_parts(tensor, take)
    }

    /// Replaces what a tensor holds.
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn write(&mut self, tensor: Tensor, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.sealed.write(tensor, bytes)?)
    }

    /// Makes the working copy of what [`Self::write`] has put into the tensors of [`Self::state`].
    ///
    /// # Errors
    /// [`Failure`] of the device.
    pub fn restored(&mut self) -> Result<(), Failure> {
        Ok(self.sealed.run(CAST)?)
    }
}

/// Lowers a run, its teacher in the form that the configuration asks for, on a device.
///
/// # Errors
/// [`Failure`] where models and run do not go together, or fit in no form.
pub(crate) fn plan(
    device: &Device,
    config: &RunConfig,
    teacher: Option<(&ModelConfig, &Formats)>,
    student: &ModelConfig,
) -> Result<Chosen<TrainingPlan>, Failure> {
    let arch = device::arch(device)?;
    let dense = Formats::dense();
    let formats = teacher.map_or(&dense, |(_, formats)| formats);
    Choice { flag: "--teacher-format", asked: config.teacher_format.unwrap_or_default(), formats }.make(
        device,
        |formats| {
            TrainingPlan::with_formats(teacher.map(|(config, _)| (config, formats)), student, &config.recipe(), arch)
        },
    )
}

/// Checks memory, verifies and loads the bundle, seals. Returns the bundle's digest and the memory taken.
pub(crate) fn seal(
    driver: AnyDriver,
    plan: &precast_plan::Plan,
    kernels: &Kernels,
    models: &[String],
    placement: Placement,
    startup: &mut Startup,
) -> Result<(Sealed<AnyDriver>, Digest, u64), Failure> {
    let device = driver.device();
    let source = kernels.find(device::arch(device)?, plan)?;
    if let Some(note) = source.note() {
        eprintln!("note: {note}");
    }
    let bundle = source.open()?;
    if plan.arena_bytes > device.free_bytes {
        return Err(Failure::Memory {
            needed: plan.arena_bytes,
            free: device.free_bytes,
            device: device.name.clone(),
            table: MemoryTable::of(plan).to_string(),
        });
    }
    let free_before = driver.free_bytes()?;
    let mut loading = Loading::new(driver);
    loading.load(&bundle, plan, models).map_err(|error| source.not_loaded(error))?;
    startup.end("verify and load");
    let sealed = loading.seal(plan, placement)?;
    let taken = free_before.saturating_sub(sealed.free_bytes()?);
    startup.end("seal");
    Ok((sealed, bundle.digest(), taken))
}

/// Sends the tables of a model's rotary embedding.
pub(crate) fn upload_tables(
    sealed: &mut Sealed<AnyDriver>,
    model: &Resident,
    config: &ModelConfig,
) -> Result<(), Failure> {
    let seq_len = (model.rope.cos.elems / u64::from(config.head_dim / 2)) as u32;
    let tables = rope::tables(&config.rope_frequencies(), seq_len);
    sealed.write(model.rope.cos, bytemuck::cast_slice(&tables.cos))?;
    Ok(sealed.write(model.rope.sin, bytemuck::cast_slice(&tables.sin))?)
}

/// Sends parameters, each to its tensor, in that tensor's format.
pub(crate) fn upload_parameters<'a>(
    sealed: &mut Sealed<AnyDriver>,
    parameters: impl Iterator<Item = (&'a Parameter, Tensor)>,
    weights: &dyn Weights,
    progress: &mut impl FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut scratch = Scratch::new();
    for (parameter, tensor) in parameters {
        let bytes = weights.read(parameter, tensor.format, &mut scratch)?;
        sealed.write(tensor, bytes)?;
        progress(bytes.len() as u64)?;
    }
    Ok(())
}
