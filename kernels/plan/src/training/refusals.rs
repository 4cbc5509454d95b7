//! Refuses models, recipes and shares that do not fit together.

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
    /// The teacher, if the objective needs one.
    pub teacher: Option<Teacher<'a>>,
    pub student: &'a ModelConfig,
    pub formats: &'a Formats,
    /// The adapters that train, if any.
    pub adapters: Option<AdapterParameters>,
    pub recipe: Recipe,
    pub share: Share,
    pub decode: Option<DecodeRequest>,
    pub on_policy: bool,
    pub arch: Arch,
}

impl<'a> Run<'a> {
    /// Checks a request.
    ///
    /// # Errors
    /// [`PlanError`] if the run cannot be planned.
    pub fn new(request: TrainingRequest<'a>) -> Result<Self, PlanError> {
        request.share.check()?;
        let teacher = teacher(&request)?;
        let TrainingRequest {
            student: Student { config: student, formats, adapters },
            recipe,
            share,
            decode,
            on_policy,
            arch,
            ..
        } = request;
        if adapters.is_empty() && matches!(teacher, Some(Teacher::Base)) {
            return Err(PlanError::BaseWithoutAdapters);
        }
        if adapters.is_empty() {
            check_rounded(student, formats)?;
        }
        check_models(teacher, (student, formats, adapters.is_empty()), &recipe)?;
        decode.map_or(Ok(()), |request| request.check(student, recipe.seq_len))?;
        check_bytes(teacher, (student, !adapters.is_empty(), !formats.is_dense()), &recipe)?;
        let adapters = if adapters.is_empty() { None } else { Some(AdapterParameters::new(student, adapters)?) };
        let adapter_elems = adapters.as_ref().map_or(0, |adapters| adapters.elems);
        bounds::refuse(u128::from(adapter_elems) * u128::from(trained_bytes(&recipe, false)))?;
        Ok(Self { teacher, student, formats, adapters, recipe, share, decode, on_policy, arch })
    }

    /// Returns the teacher, if it has weights of its own on the device.
    pub fn resident_teacher(&self) -> Option<(&'a ModelConfig, &'a Formats)> {
        match self.teacher? {
            Teacher::Model { config, formats } => Some((config, formats)),
            Teacher::Base | Teacher::Student | Teacher::Cached(_) | Teacher::Known { .. } => None,
        }
    }

    /// Returns true if the student's base teaches.
    pub fn base_teaches(&self) -> bool {
        matches!(self.teacher, Some(Teacher::Base))
    }

    /// Returns true if the student teaches itself.
    pub fn student_teaches(&self) -> bool {
        matches!(self.teacher, Some(Teacher::Student))
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

/// Returns the teacher that the objective needs.
fn teacher<'a>(request: &TrainingRequest<'a>) -> Result<Option<Teacher<'a>>, PlanError> {
    if !request.recipe.objective.has_teacher() {
        return Ok(None);
    }
    request.teacher.map(Some).ok_or(PlanError::NoTeacher)
}

/// Refuses models that do not fit the recipe or each other.
fn check_models(
    teacher: Option<Teacher<'_>>,
    (student, formats, trains_whole): (&ModelConfig, &Formats, bool),
    recipe: &Recipe,
) -> Result<(), PlanError> {
    let other = teacher.and_then(|teacher| match teacher {
        Teacher::Model { config, .. } | Teacher::Cached(config) => Some(config),
        Teacher::Base | Teacher::Student | Teacher::Known { .. } => None,
    });
    for (role, config) in [("teacher", other), ("student", Some(student))] {
        config.map_or(Ok(()), |config| check_tokens(config, role, recipe.batch, recipe.seq_len))?;
    }
    if let Some(teacher) = other.filter(|teacher| teacher.vocab < student.vocab) {
        return Err(PlanError::TeacherNarrower { teacher: teacher.vocab, student: student.vocab });
    }
    match teacher {
        Some(Teacher::Model { config, formats }) => formats.check(config, recipe.precision.dtype())?,
        Some(Teacher::Known { keep }) => check_keep(keep, student.vocab)?,
        _ => {}
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
    teacher: Option<Teacher<'_>>,
    (student, is_frozen, is_rounded): (&ModelConfig, bool, bool),
    recipe: &Recipe,
) -> Result<(), PlanError> {
    let bytes = recipe.precision.dtype().bytes();
    let parameter_bytes = if is_frozen { bytes } else { trained_bytes(recipe, is_rounded) };
    let kept_layers = if recipe.recompute == Recompute::Blocks { 1 } else { student.depth() };
    let head;
    let of_teacher = match teacher {
        Some(Teacher::Model { config, .. }) => Some((config, 1)),
        Some(Teacher::Cached(config)) => {
            head = ModelConfig { layers: Vec::new(), tied: true, ..config.clone() };
            Some((&head, 0))
        }
        Some(Teacher::Base | Teacher::Student | Teacher::Known { .. }) | None => None,
    };
    let of_teacher = of_teacher.map(|(config, kept_layers)| ModelPart { config, parameter_bytes: bytes, kept_layers });
    let of_student = ModelPart { config: student, parameter_bytes, kept_layers };
    let parts: Vec<ModelPart<'_>> = of_teacher.into_iter().chain([of_student]).collect();
    bounds::check(&parts, recipe.tokens(), bytes)
}
