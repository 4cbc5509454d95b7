//! Refuses models, recipes and shares that do not fit together.

use std::borrow::Cow;

use precast_kernels::{Arch, Dtype, fake_quant};

use super::request::{Student, Teacher, TrainingRequest};
use crate::adapters::AdapterParameters;
use crate::bounds::{self, ModelPart};
use crate::config::ModelConfig;
use crate::decoding::DecodeRequest;
use crate::formats::{Formats, check_student};
use crate::gemm::Workspaces;
use crate::ops::Ops;
use crate::parameters::Parameters;
use crate::predictions::check_keep;
use crate::recipe::{PlanError, Precision, Recipe, Recompute, check_tokens};
use crate::share::Share;
use precast_core::plan::Builder;

/// A checked request.
pub(super) struct Run<'a> {
    /// The teachers, if the objective needs any.
    pub teachers: Vec<Teacher<'a>>,
    pub student: &'a ModelConfig,
    pub formats: &'a Formats,
    /// The adapters that train, if any.
    pub adapters: Option<AdapterParameters>,
    pub recipe: Recipe,
    pub share: Share,
    pub decode: Option<DecodeRequest>,
    pub on_policy: bool,
    /// Micro-batches of a teacher's pass, if it computes several at a time.
    pub pass: Option<u32>,
    pub arch: Arch,
}

impl<'a> Run<'a> {
    /// Checks a request.
    ///
    /// # Errors
    /// [`PlanError`] if the run cannot be planned.
    pub fn new(request: TrainingRequest<'a>) -> Result<Self, PlanError> {
        request.share.check()?;
        let teachers = teachers(&request)?;
        let TrainingRequest {
            student: Student { config: student, formats, adapters },
            recipe,
            share,
            decode,
            on_policy,
            pass,
            arch,
            ..
        } = request;
        if student.experts.is_some() {
            return Err(PlanError::Experts);
        }
        if adapters.is_empty() && teachers.iter().any(|teacher| matches!(teacher, Teacher::Base)) {
            return Err(PlanError::BaseWithoutAdapters);
        }
        if adapters.is_empty() {
            check_rounded(student, formats)?;
        }
        check_models(&teachers, (student, formats, adapters.is_empty()), &recipe)?;
        decode.map_or(Ok(()), |request| request.check(student, recipe.seq_len))?;
        check_bytes(&teachers, (student, !adapters.is_empty(), !formats.is_dense()), &recipe)?;
        let adapters = if adapters.is_empty() { None } else { Some(AdapterParameters::new(student, adapters)?) };
        let adapter_elems = adapters.as_ref().map_or(0, |adapters| adapters.elems);
        bounds::refuse(u128::from(adapter_elems) * u128::from(trained_bytes(&recipe, false)))?;
        let is_alone = matches!(teachers[..], [Teacher::Model { .. }]) && !recipe.own_prompts && !on_policy;
        let pass = (is_alone && pass > 1).then_some(pass);
        Ok(Self { teachers, student, formats, adapters, recipe, share, decode, on_policy, pass, arch })
    }

    /// Returns the tokens that a teacher computes at a time.
    pub fn teacher_tokens(&self) -> u32 {
        self.recipe.tokens() * self.pass.unwrap_or(1)
    }

    pub fn dtype(&self) -> Dtype {
        self.recipe.precision.dtype()
    }

    pub fn is_int8(&self) -> bool {
        self.recipe.precision == Precision::Int8
    }

    /// Starts operations on the tokens of a micro-batch.
    pub fn ops<'b>(&self, b: &'b mut Builder, workspaces: Option<Workspaces>) -> Ops<'b> {
        Ops::new(b, self.recipe.tokens(), self.dtype(), workspaces)
    }
}

/// Returns the teachers that the objective needs.
fn teachers<'a>(request: &TrainingRequest<'a>) -> Result<Vec<Teacher<'a>>, PlanError> {
    match request.recipe.objective.has_teacher() {
        false => Ok(Vec::new()),
        true if request.teachers.is_empty() => Err(PlanError::NoTeacher),
        true => Ok(request.teachers.clone()),
    }
}

/// Refuses models that do not fit the recipe or each other.
fn check_models(
    teachers: &[Teacher<'_>],
    (student, formats, trains_whole): (&ModelConfig, &Formats, bool),
    recipe: &Recipe,
) -> Result<(), PlanError> {
    let others = teachers.iter().filter_map(|teacher| match teacher {
        Teacher::Model { config, .. } | Teacher::Cached(config) => Some(*config),
        Teacher::Base | Teacher::Student | Teacher::Known { .. } => None,
    });
    for (role, config) in others.clone().map(|config| ("teacher", config)).chain([("student", student)]) {
        check_tokens(config, role, recipe.batch, recipe.seq_len)?;
    }
    if let Some(teacher) = others.clone().find(|teacher| teacher.vocab < student.vocab) {
        return Err(PlanError::TeacherNarrower { teacher: teacher.vocab, student: student.vocab });
    }
    for teacher in teachers {
        match teacher {
            Teacher::Model { config, formats } => formats.check(config, recipe.precision.dtype())?,
            Teacher::Known { keep } => check_keep(*keep, student.vocab)?,
            Teacher::Base | Teacher::Student | Teacher::Cached(_) => {}
        }
    }
    match recipe.precision {
        Precision::Int8 if !formats.is_dense() && !trains_whole => Err(PlanError::StoredInt8),
        Precision::Int8 => check_student(student),
        Precision::Fp32 | Precision::Bf16 => Ok(()),
    }
}

/// Refuses to round a student that trains to blocks unless every matrix is in some to which weights are quantized.
fn check_rounded(student: &ModelConfig, formats: &Formats) -> Result<(), PlanError> {
    if formats.is_int8() {
        return Err(PlanError::StoredWithoutAdapters);
    }
    if formats.is_dense() {
        return Ok(());
    }
    let is_rounded = |name: &str| formats.of(name).is_some_and(|block| fake_quant::FORMATS.contains(&block));
    let mut matrices = Parameters::new(student).list.into_iter().filter(|one| one.shape.len() == 2);
    matrices
        .find(|one| !is_rounded(&one.name))
        .map_or(Ok(()), |one| Err(PlanError::Rounded { columns: one.shape[1], name: one.name }))
}

/// Returns the bytes per trained parameter: weight, master weight if distinct, gradient and two moments.
fn trained_bytes(recipe: &Recipe, is_rounded: bool) -> u64 {
    let dtype = recipe.precision.dtype();
    let master = if dtype == Dtype::F32 && !is_rounded { 0 } else { 4 };
    dtype.bytes() + master + 4 + 2 * recipe.moments.dtype().bytes()
}

/// Refuses models whose largest parts alone are too large.
fn check_bytes(
    teachers: &[Teacher<'_>],
    (student, is_frozen, is_rounded): (&ModelConfig, bool, bool),
    recipe: &Recipe,
) -> Result<(), PlanError> {
    let bytes = recipe.precision.dtype().bytes();
    let parameter_bytes = if is_frozen { bytes } else { trained_bytes(recipe, is_rounded) };
    let kept_layers = if recipe.recompute == Recompute::Blocks { 1 } else { student.depth() };
    let head = |config: &ModelConfig| ModelConfig { layers: Vec::new(), tied: true, ..config.clone() };
    let of_teachers = teachers.iter().filter_map(|teacher| match teacher {
        Teacher::Model { config, .. } => Some((Cow::Borrowed(*config), 1)),
        Teacher::Cached(config) => Some((Cow::Owned(head(config)), 0)),
        Teacher::Base | Teacher::Student | Teacher::Known { .. } => None,
    });
    let of_teachers: Vec<(Cow<'_, ModelConfig>, u32)> = of_teachers.collect();
    let of_teachers = of_teachers.iter().map(|(config, kept_layers)| ModelPart {
        config,
        parameter_bytes: bytes,
        kept_layers: *kept_layers,
    });
    let of_student = ModelPart { config: student, parameter_bytes, kept_layers };
    let parts: Vec<ModelPart<'_>> = of_teachers.chain([of_student]).collect();
    bounds::check(&parts, recipe.tokens(), bytes)
}
