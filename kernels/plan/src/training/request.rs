//! A request for a training plan.

use precast_kernels::Arch;

use crate::adapters::Adapters;
use crate::config::ModelConfig;
use crate::decoding::DecodeRequest;
use crate::formats::Formats;
use crate::recipe::Recipe;
use crate::share::Share;

static DENSE: Formats = Formats::dense();
static NO_ADAPTERS: Adapters = Adapters::none();

/// A model that trains: all of it, or its adapters.
#[derive(Clone, Copy, Debug)]
pub struct Student<'a> {
    pub config: &'a ModelConfig,
    /// Formats of its matrices. Where all of it trains, launches read the values that blocks of the master weights
    /// have: weights are quantized behind each update, and gradients go to the masters as if they were not.
    pub formats: &'a Formats,
    /// If there are any, only they train, and the model is their frozen base.
    pub adapters: &'a Adapters,
}

impl<'a> From<(&'a ModelConfig, &'a Formats)> for Student<'a> {
    /// All of the model trains, its matrices in these formats.
    fn from((config, formats): (&'a ModelConfig, &'a Formats)) -> Self {
        Self { config, formats, adapters: &NO_ADAPTERS }
    }
}

impl<'a> From<&'a ModelConfig> for Student<'a> {
    /// All of the model trains.
    fn from(config: &'a ModelConfig) -> Self {
        Self { config, formats: &DENSE, adapters: &NO_ADAPTERS }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Teacher<'a> {
    /// A model of its own.
    Model {
        config: &'a ModelConfig,
        /// Formats of its matrices.
        formats: &'a Formats,
    },
    /// The student's base, without its adapters: one copy of the weights serves both.
    Base,
    /// The student as it is, with its adapters: no gradient passes through what it teaches.
    Student,
    /// A model whose last hidden states were computed before: they are sent with each micro-batch, and its head alone
    /// is on the device.
    Cached(&'a ModelConfig),
    /// A model reduced to the probabilities of `keep` tokens a position, and the combined probability of the rest: they
    /// are sent with each micro-batch.
    Known { keep: u32 },
}

impl<'a> From<&'a ModelConfig> for Teacher<'a> {
    /// All of its matrices are dense.
    fn from(config: &'a ModelConfig) -> Self {
        Self::from((config, &DENSE))
    }
}

impl<'a> From<(&'a ModelConfig, &'a Formats)> for Teacher<'a> {
    fn from((config, formats): (&'a ModelConfig, &'a Formats)) -> Self {
        Self::Model { config, formats }
    }
}

/// A training run to be planned.
#[derive(Clone, Debug)]
pub struct TrainingRequest<'a> {
    /// Ignored if the objective needs none. Each micro-batch has one of them.
    pub teachers: Vec<Teacher<'a>>,
    pub student: Student<'a>,
    pub recipe: Recipe,
    /// This rank's share of each step.
    pub share: Share,
    /// Decoding under the student, of sequences that are no longer than those of the recipe.
    pub decode: Option<DecodeRequest>,
    /// True if steps train on what is decoded: their micro-batches score the tokens that they are given.
    pub on_policy: bool,
    /// Micro-batches that the teacher computes at a time: those of a rank are whole passes. Several take more memory,
    /// and dequantize a stored teacher once for all of them. Only one model that teaches alone, on the
    /// student's sequences, which are known before, computes more than 1.
    pub pass: u32,
    pub arch: Arch,
}

impl<'a> TrainingRequest<'a> {
    /// Requests a student without a teacher, on one rank.
    pub fn new(student: impl Into<Student<'a>>, recipe: &Recipe, arch: Arch) -> Self {
        Self {
            teachers: Vec::new(),
            student: student.into(),
            recipe: *recipe,
            share: Share::ALONE,
            decode: None,
            on_policy: false,
            pass: 1,
            arch,
        }
    }

    /// Adds decoding under the student.
    #[must_use]
    pub fn decoding(self, request: DecodeRequest) -> Self {
        Self { decode: Some(request), ..self }
    }

    /// Trains on what is decoded.
    #[must_use]
    pub fn on_policy(self) -> Self {
        Self { on_policy: true, ..self }
    }

    /// Adds teachers, if there are any.
    #[must_use]
    pub fn taught_by(self, teachers: impl IntoIterator<Item = impl Into<Teacher<'a>>>) -> Self {
        Self { teachers: teachers.into_iter().map(Into::into).collect(), ..self }
    }
}
