//! The configuration of a run, resolved.

use std::path::{Path, PathBuf};

use precast_kernels::abi::step_metrics;
use precast_kernels::{Arch, Dtype};
use precast_plan::decoding::MOST_SLOTS;
use precast_plan::{ModelConfig, Objective, Precision, Recipe};
use serde::Serialize;
use serde_json::Value;

use super::ship::File;
use super::{
    ArithmeticOptions, Completions, DataRequest, DeviceOptions, Division, Final, Length, MostKl, OnPolicy,
    OptimizerOptions, OrderOptions, OutputOptions, PackingOptions, Passes, ShapeOptions, SlotChoice, TeacherChoice,
    TeacherPrompts, Teachers, TextOptions, TuningOptions, UsageError, WeightFormat, cached, sources,
};
use crate::base::record_text;
use crate::base::roles::{Models, Role};
use crate::inputs::adapter::{Adapter, AdapterChoice};
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::data::{DataSource, Packing, Places, Summaries, path_of};
use crate::inputs::teacher_cache::{CacheError, TeacherCache};

/// Places of a step from which on int8 GEMMs of an H200 save more time than it takes to quantize the weights: measured
/// (BENCHMARKS.md).
const INT8_PAYS: u64 = 3072;

/// A run's configuration, resolved: nothing changes it.
#[derive(Clone, Debug, Serialize)]
pub struct RunConfig {
    /// Learnt from, each by some of the data; none where nobody teaches.
    #[serde(flatten)]
    pub teachers: Teachers,
    /// True if rows have prompts that the teacher reads in place of the student's.
    #[serde(skip)]
    pub own_prompts: bool,
    /// The model to train.
    #[serde(serialize_with = "record_text::path")]
    pub student: PathBuf,
    #[serde(serialize_with = "record_text::paths")]
    pub data: Vec<PathBuf>,
    /// Data to compute the loss of and not to train on.
    #[serde(serialize_with = "record_text::paths")]
    pub eval_data: Vec<PathBuf>,
    /// Directory of results.
    #[serde(serialize_with = "record_text::path")]
    pub out: PathBuf,
    /// Minimized by the run; with a teacher's term just where there is one.
    #[serde(flatten)]
    pub objective: Objective,
    /// Training on what the student writes; none where it learns from data.
    #[serde(flatten)]
    pub on_policy: Option<OnPolicy>,
    /// How it writes, where it does: to learn from that, or to be scored by it.
    #[serde(flatten)]
    pub completions: Option<Completions>,
    /// Form of teachers' weights on the device; none where no teacher has weights of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teacher_format: Option<WeightFormat>,
    /// Measurement of a teacher that is not exact.
    #[serde(serialize_with = "record_text::path_or_none", skip_serializing_if = "Option::is_none")]
    pub teacher_certificate: Option<PathBuf>,
    /// Limit of the distance of such a teacher from the exact one; none of one that is exact.
    #[serde(serialize_with = "record_text::display_or_none", skip_serializing_if = "Option::is_none")]
    pub max_teacher_kl: Option<MostKl>,
    /// Trains while the student stays as it is; none where the student trains.
    #[serde(flatten)]
    pub adapter: Option<AdapterChoice>,
    /// Form on the device of the weights of a student that stays as it is; none where it trains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub student_format: Option<WeightFormat>,
    /// True if the teacher may predict worse than guessing does.
    pub untrained: bool,
    /// True if the student may be its teacher.
    pub allow_identical: bool,
    #[serde(flatten)]
    pub length: Length,
    #[serde(flatten)]
    pub shape: ShapeOptions,
    #[serde(flatten)]
    pub division: Division,
    #[serde(flatten)]
    pub optimizer: OptimizerOptions,
    #[serde(flatten)]
    pub arithmetic: ArithmeticOptions,
    #[serde(flatten)]
    pub text: TextOptions,
    /// With the packing of what the data hold, once that is known; none where the student writes what it learns.
    #[serde(flatten)]
    pub packing: PackingOptions,
    #[serde(flatten)]
    pub order: OrderOptions,
    #[serde(flatten)]
    pub target: DeviceOptions,
    #[serde(flatten)]
    pub tuning: TuningOptions,
    #[serde(flatten)]
    pub output: OutputOptions,
}

impl RunConfig {
    /// By the options' names, as a record holds it.
    pub fn to_json(&self) -> Value {
        // As text first: 0.1 in f32 is 0.1, and would be 0.10000000149011612 as a `Value` of its own.
        let text = serde_json::to_string(self).expect("plain data serializes");
        serde_json::from_str(&text).expect("JSON reads back")
    }

    /// Optimizer steps of the run.
    ///
    /// # Panics
    /// If they follow from data that are not counted yet: see [`Self::over`].
    pub fn steps(&self) -> u64 {
        self.length.steps()
    }

    /// Returns the configuration over data of such a packing that fill so many places, from which its length may
    /// follow.
    ///
    /// # Errors
    /// [`UsageError`] of more steps than a run may have.
    pub fn over(self, packing: Packing, places: u64) -> Result<Self, UsageError> {
        // A step takes whole micro-batches.
        let whole = if packing == Packing::None { 1 } else { self.places().count() as u64 };
        let length = self.length.counted(places.next_multiple_of(whole), self.places_a_step())?;
        let packing = PackingOptions { packing: self.on_policy.is_none().then_some(packing) };
        Ok(Self { length, packing, ..self })
    }

    /// The length of the run beside that of its data, if that is known.
    pub fn passes(&self, data: Option<&Summaries>) -> Passes {
        Passes::of(self.steps(), self.places_a_step(), self.places(), data)
    }

    /// The data that the run reads.
    ///
    /// # Errors
    /// As [`sources()`].
    pub fn data_request(&self) -> Result<DataRequest<'_>, UsageError> {
        let sources = sources(&self.data, self.length.is_open())?;
        let held_out: Vec<DataSource> = self.eval_data.iter().map(|named| DataSource::held_out(named)).collect();
        self.teachers.check_sources(&sources, &held_out)?;
        Ok(DataRequest {
            sources,
            held_out,
            teachers: self.teachers.names(),
            text: &self.text,
            shape: self.shape,
            packing: self.packing.packing,
            likely: Vec::new(),
            teacher_prompts: match self.objective.has_teacher() {
                false => TeacherPrompts::Unread,
                true => TeacherPrompts::Read { cached: self.teachers.cached() },
            },
            on_policy: self.on_policy,
            completions: self.completions,
        })
    }

    /// Sequences of a step.
    pub fn sequences_a_step(&self) -> u64 {
        u64::from(self.shape.batch_size) * u64::from(self.division.grad_accum)
    }

    /// Sequences that a rank completes at a time: those of a step; of held-out prompts it is not known how many there
    /// are.
    pub(crate) fn own_sequences(&self) -> u64 {
        let of_step = || self.sequences_a_step() / u64::from(self.division.share.ranks);
        if self.on_policy.is_some() { of_step() } else { MOST_SLOTS.into() }
    }

    /// Returns a note on a step of a GPU with too few places for int8: the weights of a student that trains are
    /// quantized in each.
    pub fn int8_note(&self, arch: Arch) -> Option<String> {
        let places = self.sequences_a_step() * u64::from(self.shape.seq_len) / u64::from(self.division.share.ranks);
        let quantizes = self.arithmetic.precision == Precision::Int8 && self.adapter.is_none();
        (quantizes && places < INT8_PAYS && arch != Arch::Sim).then(|| {
            format!(
                "--precision int8: the weights are quantized in each step, and GEMMs of its {places} places may save \
                less time than that takes: on an H200 bf16 is faster below {INT8_PAYS}"
            )
        })
    }

    /// Returns a run whose student writes into so many slots; any other as it is.
    pub(crate) fn with_slots(&self, count: u32) -> Self {
        let of = |completions| Completions { rollout_slots: SlotChoice::Count(count), ..completions };
        Self { completions: self.completions.map(of), ..self.clone() }
    }

    /// Micro-batches of the data that a step takes: of on-policy runs those are prompts, one by one.
    pub fn data_micros(&self) -> u32 {
        if self.on_policy.is_some() { self.rows_a_step() as u32 } else { self.division.grad_accum }
    }

    /// Places that a step has for rows of the data: of each of its prompts a sequence.
    fn places_a_step(&self) -> u64 {
        self.rows_a_step() * u64::from(self.shape.seq_len)
    }

    /// Places of a micro-batch of the data.
    pub fn places(&self) -> Places {
        let ShapeOptions { batch_size, seq_len } = self.shape;
        Places::new(batch_size, seq_len, self.packing.packing.unwrap_or_default())
    }

    /// Sequences of the data that a step takes, a row each: each of its prompts once.
    pub fn rows_a_step(&self) -> u64 {
        self.sequences_a_step() / self.on_policy.map_or(1, |on_policy| on_policy.group_size.into())
    }

    /// The files and directories that a run reads.
    pub fn inputs(&self) -> Vec<&Path> {
        let others = self.teacher_certificate.iter().chain(&self.tuning.tuned);
        let files = self.teachers.iter().flat_map(TeacherChoice::inputs).chain([&*self.student]);
        let files = files.chain(others.map(PathBuf::as_path));
        let held_out = self.eval_data.iter().map(|named| DataSource::held_out_path(named));
        let files = files.chain(held_out);
        let adapter = self.adapter.as_ref().and_then(AdapterChoice::directory);
        let data = self.data.iter().map(|named| path_of(named));
        files.chain(data).chain(adapter).chain(self.target.kernels.inputs()).collect()
    }

    /// The adapter that trains, of a student of this shape; none where the student trains.
    ///
    /// # Errors
    /// [`CheckpointError`] where it cannot be read.
    pub fn open_adapter(&self, student: &ModelConfig) -> Result<Option<Adapter>, CheckpointError> {
        let open = |choice: &AdapterChoice| choice.open((&self.student, student), self.order.seed);
        self.adapter.as_ref().map(open).transpose()
    }

    /// Checks that a cache of the teacher is of this run.
    ///
    /// # Errors
    /// [`CacheError::OtherOption`], [`CacheError::OtherTemperature`].
    pub fn check_cache(&self, cache: &TeacherCache) -> Result<(), CacheError> {
        cache.check_shape(self.arithmetic.precision, self.shape.seq_len)?;
        let compact = cache.manifest().made.compact;
        match compact.and_then(|compact| cached::other_temperature(compact, self.objective)) {
            None => Ok(()),
            Some(values) => Err(cache.of_another_temperature(values)),
        }
    }

    /// Returns the paths of the models.
    pub fn models(&self) -> Models<&Path> {
        Models { teachers: self.teachers.iter().map(|teacher| &*teacher.path).collect(), student: &self.student }
    }

    /// Returns these paths as commands in messages name them.
    pub fn model_names(&self) -> Vec<String> {
        self.models().iter().map(|(_, path)| path.display().to_string()).collect()
    }

    /// The directory of what is trained, in the output directory.
    pub fn result(&self) -> &'static str {
        if self.adapter.is_some() { "adapter" } else { "student" }
    }

    /// What messages call a model of the run: the one that trains without a teacher is no student.
    pub fn name_of(&self, role: Role) -> String {
        match role {
            Role::Student if self.teachers.is_empty() => "model".to_owned(),
            Role::Student => role.name().to_owned(),
            Role::Teacher(number) => self.teachers[number].role(),
        }
    }

    /// What messages call that which trains: the adapter, or its model.
    pub fn trained(&self) -> &'static str {
        match self.adapter {
            Some(_) => "adapter",
            None if self.teachers.is_empty() => "model",
            None => Role::Student.name(),
        }
    }

    /// The file in blocks that the run trains for, if any.
    pub fn file(&self) -> Option<File> {
        self.arithmetic.ship.map(|layers| File::new(layers, self.arithmetic.ship_head))
    }

    /// Element type of the model that a run writes: that of its arithmetic, or f32, where blocks of the weights are
    /// trained.
    pub fn result_dtype(&self) -> Dtype {
        if self.arithmetic.ship.is_some() { Dtype::F32 } else { self.arithmetic.precision.dtype() }
    }

    /// The directory of the best step's weights, where those of the last have the other.
    pub fn best_result(&self) -> String {
        format!("{}.best", self.result())
    }

    /// Directories that a run writes at its end, each with the step of its weights: after `done` steps, of which `best`
    /// had the lowest held-out loss. None of a best step that is not known.
    pub fn results(&self, done: u64, best: Option<u64>) -> Option<Vec<(String, u64)>> {
        let result = || self.result().to_owned();
        Some(match self.output.r#final {
            Final::Last => vec![(result(), done)],
            Final::Best => vec![(result(), best?)],
            Final::Both => vec![(result(), done), (self.best_result(), best?)],
        })
    }

    /// Returns the directory that a run that diverged leaves instead.
    pub fn diverged(&self) -> String {
        format!("{}.diverged", self.result())
    }

    /// The loss of a step, nats.
    pub fn loss(&self, metrics: &step_metrics) -> f64 {
        self.objective.loss(metrics.kd_loss.into(), metrics.ce_loss.into())
    }

    /// Returns the choices that the plan follows from.
    pub fn recipe(&self) -> Recipe {
        let ShapeOptions { batch_size: batch, seq_len } = self.shape;
        let ArithmeticOptions { recompute, precision, gemm, moments, .. } = self.arithmetic;
        let OptimizerOptions { weight_decay, clip, .. } = self.optimizer;
        let objective = self.objective;
        let packed = self.on_policy.is_some() || self.places().packing != Packing::None;
        let own_prompts = self.own_prompts;
        Recipe {
            batch,
            seq_len,
            packed,
            own_prompts,
            precision,
            objective,
            weight_decay,
            clip,
            recompute,
            gemm,
            moments,
        }
    }
}
