//! The shapes of the models of a run, which its plan follows from.

use std::path::Path;

use precast_kernels::Arch;
use precast_plan::{
    Adapters, DecodeRequest, Formats, Gemm, ModelConfig, PlanError, Precision, Recipe, Sampling, Slots, Student,
    Teacher, TrainingPlan, TrainingRequest,
};

use crate::base::notes::note;
use crate::base::roles::Models;
use crate::device::DeviceError;
use crate::device::fit::{Choice, check_stored, formats, is_stored_dense};
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint;
use crate::inputs::pair::same_path;
use crate::inputs::teacher_cache::{CacheManifest, TeacherCache};
use crate::options::{Advised, Completions, Kernels, RunConfig, TaughtBy, TeacherChoice, UsageError, WeightFormat};

/// Completions of held-out prompts in a report.
pub const SAMPLES: u32 = 3;
/// Tokens of each, with its prompt, at most.
const SAMPLE_TOKENS: u32 = 256;

/// Properties of a run's models that its plan follows from: their shapes, and in which formats their matrices are
/// stored.
#[derive(Clone, Debug)]
pub struct Shapes {
    /// By their numbers.
    pub teachers: Vec<TeacherShape>,
    pub student: (ModelConfig, Formats),
    /// None of them where the student itself trains.
    pub adapters: Adapters,
}

/// Properties of a teacher that its run's plan follows from.
#[derive(Clone, Debug)]
pub struct TeacherShape {
    pub config: ModelConfig,
    pub formats: Formats,
    pub by: TaughtBy,
    /// True if it is the student's files, byte for byte.
    pub same_files: bool,
    /// Manifest of the cache that its rows are read from, if there is one.
    pub cache: Option<CacheManifest>,
}

/// Opens a teacher's cache, which one of the trusted keys has signed if there are any.
///
/// # Errors
/// [`DeviceError`] where it cannot be read, or is not signed so.
pub fn open_trusted(cache: &Path, kernels: &Kernels) -> Result<TeacherCache, DeviceError> {
    let trusted = kernels.keys()?;
    let cache = TeacherCache::open_trusted(cache, &trusted)?;
    if trusted.is_empty() && cache.has_signature() {
        note(format_args!(
            "{} is signed, and no trusted key is configured: its signature is not checked (--trusted-key KEY refuses \
            what KEY did not sign)",
            cache.path().display()
        ));
    }
    Ok(cache)
}

/// Opens the cache of each teacher of a run that has one.
///
/// # Errors
/// Those of [`open_trusted`], and of a cache of other runs.
pub(super) fn open_caches(config: &RunConfig) -> Result<Vec<Option<TeacherCache>>, DeviceError> {
    let open = |teacher: &TeacherChoice| {
        let Some(path) = teacher.cache() else { return Ok(None) };
        let cache = open_trusted(path, &config.target.kernels)?;
        config.check_cache(&cache)?;
        Ok(Some(cache))
    };
    config.teachers.iter().map(open).collect()
}

impl Shapes {
    /// Reads the models that a configuration names, without their weights; a bare `config.json` stands for a file in
    /// the mix of Q4_K_M.
    ///
    /// # Errors
    /// [`DeviceError`] where one cannot be read.
    pub fn read(config: &RunConfig) -> Result<Self, DeviceError> {
        let caches = open_caches(config)?;
        let Models { teachers, student } = config.models().try_map(|path| checkpoint::shape(path))?;
        let shapes = config.teachers.iter().zip(teachers).zip(caches).zip(same_paths(&config.models()));
        let shapes = shapes.map(|(((teacher, (model, formats)), cache), same_files)| {
            cache.as_ref().map_or(Ok(()), |cache| cache.check_student(student.0.vocab))?;
            let cache = cache.map(|cache| cache.manifest().clone());
            Ok(TeacherShape { config: model, formats, by: teacher.by.clone(), same_files, cache })
        });
        let teachers = shapes.collect::<Result<_, DeviceError>>()?;
        let adapter = config.open_adapter(&student.0)?;
        Ok(Self { teachers, adapters: adapters(adapter.as_ref()), student })
    }

    /// In which form a frozen student is to live on the device.
    pub fn student_format(&self, config: &RunConfig) -> WeightFormat {
        match config.student_format {
            _ if config.arithmetic.precision == Precision::Int8 => WeightFormat::Int8,
            Some(WeightFormat::Stored) if self.student.1.is_dense() => WeightFormat::Bf16,
            Some(format) => format,
            None => WeightFormat::Bf16,
        }
    }

    /// Flags that ask to keep a model as its file stores it, where that is dense.
    pub fn stored_dense(&self, config: &RunConfig) -> Vec<&'static str> {
        let teachers = self.computed().map(|one| ("--teacher-format", config.teacher_format, &one.formats));
        let asked = teachers.chain([("--student-format", config.student_format, &self.student.1)]);
        let dense = asked.filter(|(_, asked, formats)| is_stored_dense(asked.unwrap_or_default(), formats));
        dense.map(|(flag, ..)| flag).collect()
    }

    /// True if a student that stays as it is takes less in the blocks of its file, and is not kept so.
    pub fn student_could_be_stored(&self, config: &RunConfig) -> bool {
        !self.adapters.is_empty() && !self.student.1.is_dense() && self.student_format(config) == WeightFormat::Bf16
    }

    /// Refuses to keep weights as they are stored where no kernel reads that.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check(&self, config: &RunConfig) -> Result<(), UsageError> {
        let asked = config.student_format.unwrap_or_default();
        if asked == WeightFormat::Stored && config.arithmetic.precision == Precision::Int8 {
            return Err(UsageError(PlanError::StoredInt8.advised()));
        }
        check_stored("--student-format", asked, &self.student.1)?;
        let asked = config.teacher_format.unwrap_or_default();
        self.with_weights(config).try_for_each(|teacher| check_stored("--teacher-format", asked, &teacher.formats))
    }

    /// True if a teacher's weights are the student's, once in memory: the student teaches itself, or a frozen student
    /// of the same files does, in the form that is asked for.
    pub fn shares_weights(&self, teacher: &TeacherShape, config: &RunConfig) -> bool {
        if teacher.by == TaughtBy::Student {
            return true;
        }
        let dense = self.student.1.is_dense();
        let asked = config.teacher_format.filter(|_| teacher.by != TaughtBy::Base).unwrap_or_default();
        let form = self.student_format(config);
        let same_form = match form.is_exact() {
            true => asked.is_exact() && (dense || asked == WeightFormat::Auto || asked == form),
            false => asked == form,
        };
        teacher.cache.is_none() && teacher.same_files && !self.adapters.is_empty() && same_form
    }

    /// Returns the teachers that are computed in the run.
    pub fn computed(&self) -> impl Iterator<Item = &TeacherShape> {
        self.teachers.iter().filter(|teacher| teacher.cache.is_none())
    }

    /// Returns those of them that have weights of their own in memory.
    pub fn with_weights<'a>(&'a self, config: &'a RunConfig) -> impl Iterator<Item = &'a TeacherShape> {
        self.computed().filter(|teacher| !self.shares_weights(teacher, config))
    }

    /// True if the rows of any teacher are read from a cache.
    pub fn has_cache(&self) -> bool {
        self.teachers.iter().any(|teacher| teacher.cache.is_some())
    }

    /// Lowers a run, its teachers' matrices in a form unless they share their weights with the student.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn lower(
        &self,
        config: &RunConfig,
        recipe: &Recipe,
        Choice { format: form, pass, .. }: Choice,
        arch: Arch,
    ) -> Result<TrainingPlan, PlanError> {
        let pass = if form == WeightFormat::Stored { pass } else { 1 };
        let dense = Formats::dense();
        let of_teacher = |teacher: &TeacherShape| match teacher.by {
            // It stays exact beside others in 8 bits.
            TaughtBy::Base if !form.is_exact() => Formats::dense(),
            _ => formats(form, Some(&teacher.formats)),
        };
        let of_teachers: Vec<Formats> = self.teachers.iter().map(of_teacher).collect();
        let teachers = self.teachers.iter().zip(&of_teachers).map(|(teacher, formats)| {
            match self.shares_weights(teacher, config) {
                true if teacher.by == TaughtBy::Student => Teacher::Student,
                true => Teacher::Base,
                false => match &teacher.cache {
                    None => Teacher::Model { config: &teacher.config, formats },
                    Some(cache) => match cache.made.compact {
                        None => Teacher::Cached(&teacher.config),
                        Some(compact) => Teacher::Known { keep: compact.keep_logits },
                    },
                },
            }
        });
        let teachers = teachers.collect();
        let (of_student, stored) = &self.student;
        let shipped = config.file().map(|file| file.formats(of_student));
        let is_stored = self.student_format(config) == WeightFormat::Stored;
        let of_weights = shipped.as_ref().unwrap_or(if is_stored { stored } else { &dense });
        let student = Student { config: of_student, formats: of_weights, adapters: &self.adapters };
        let (share, on_policy) = (config.division.share, config.on_policy.is_some());
        let decode = completions(config, recipe).or_else(|| self.samples(config, recipe));
        TrainingPlan::new(TrainingRequest { teachers, student, recipe: *recipe, share, decode, on_policy, pass, arch })
    }

    /// Requests decoding for the report's samples, of a run that holds data out. cuBLASLt's rows depend on their
    /// number, and decoding is of few.
    fn samples(&self, config: &RunConfig, recipe: &Recipe) -> Option<DecodeRequest> {
        let is_asked = !config.eval_data.is_empty() && recipe.gemm == Gemm::Bundle && recipe.seq_len > 1;
        let slots = Slots { count: SAMPLES, seq_len: recipe.seq_len.min(SAMPLE_TOKENS) };
        let request = DecodeRequest { slots, sampling: Sampling::LIKELIEST };
        (is_asked && DecodeRequest::draws(&self.student.0)).then_some(request)
    }
}

/// Requests decoding of the sequences that the student writes.
fn completions(config: &RunConfig, recipe: &Recipe) -> Option<DecodeRequest> {
    let Completions { sampling, rollout_slots, .. } = config.completions?;
    let count = rollout_slots.most(config.own_sequences());
    Some(DecodeRequest { slots: Slots { count, seq_len: recipe.seq_len }, sampling })
}

/// Returns true of each teacher that is its student.
pub(super) fn same_paths(Models { teachers, student }: &Models<&Path>) -> Vec<bool> {
    teachers.iter().map(|teacher| same_path(teacher, student)).collect()
}

/// Returns the adapters that a plan has: those of the one that trains.
pub(super) fn adapters(adapter: Option<&Adapter>) -> Adapters {
    adapter.map_or_else(Adapters::none, |adapter| adapter.layout.adapters())
}
