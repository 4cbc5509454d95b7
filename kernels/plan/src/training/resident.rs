//! Declares weights that stay on the device from the first step to the last.

use super::phases::of_teacher;
use super::refusals::Run;
use super::request::Teacher;
use crate::cached::CachedTeacher;
use crate::category;
use crate::formats::Formats;
use crate::model::Resident;
use crate::sections::Sections;
use crate::weights::{AdapterWeights, Passes, Weight, Weights};
use precast_core::plan::Builder;

/// Models that start-up phases may quantize: declared before those phases.
pub(super) struct Frozen {
    /// Teachers by their numbers, of those that have weights of their own.
    pub teachers: Vec<Option<Resident>>,
    /// The base of adapters that train in int8.
    pub base: Option<Resident>,
}

impl Frozen {
    pub fn declare(b: &mut Builder, run: &Run<'_>) -> Self {
        let (dtype, shape) = (run.dtype(), (run.teacher_tokens(), run.recipe.seq_len));
        let mut teacher = |(number, teacher): (usize, &Teacher<'_>)| {
            let Teacher::Model { config, formats } = teacher else { return None };
            let (name, of) = (of_teacher("teacher", number), category::TEACHER_WEIGHTS);
            let weights = Weights::frozen(b, &name, of, config, (formats, dtype), Passes::Forward);
            Some(Resident::new(b, &name, config, weights, shape))
        };
        let teachers = run.teachers.iter().enumerate().map(&mut teacher).collect();
        let base = (run.is_int8() && run.adapters.is_some()).then(|| {
            let int8 = (&Formats::int8(), dtype);
            let weights = Weights::frozen(b, "student", category::STUDENT_WEIGHTS, run.student, int8, Passes::Both);
            Resident::new(b, "student", run.student, weights, shape)
        });
        Self { teachers, base }
    }
}

/// A teacher of a run, and what it has on the device.
#[derive(Clone, Debug, PartialEq)]
pub enum TeacherBuffers {
    /// A model of its own, in the precision of the run or as stored.
    Model(Box<Resident>),
    /// A model that is cached: its head and its input.
    Cached(CachedTeacher),
    /// The student's base, without its adapters.
    Base,
    /// The student itself.
    Student,
}

impl TeacherBuffers {
    /// Returns a model of its own.
    pub fn model(&self) -> Option<&Resident> {
        if let Self::Model(model) = self { Some(model) } else { None }
    }

    /// Returns what there is of a model that is cached.
    pub fn cached(&self) -> Option<&CachedTeacher> {
        if let Self::Cached(cached) = self { Some(cached) } else { None }
    }
}

/// The models of a run.
pub(super) struct Residents {
    /// The teachers, each with its name in labels.
    pub teachers: Vec<(String, TeacherBuffers)>,
    /// The student without adapters.
    pub base: Resident,
    pub student: Resident,
    /// The adapters that train, if any.
    pub adapters: Option<AdapterWeights>,
}

impl Residents {
    /// Declares the models not yet declared.
    pub fn declare(b: &mut Builder, run: &Run<'_>, Frozen { teachers, base }: Frozen) -> Self {
        let (config, dtype, tokens) = (run.student, run.dtype(), run.recipe.tokens());
        let mut declared = |(number, (teacher, model)): (usize, (&Teacher<'_>, Option<Resident>))| {
            let name = of_teacher("teacher", number);
            let buffers = match *teacher {
                Teacher::Model { .. } => {
                    TeacherBuffers::Model(Box::new(model.expect("a model of its own is declared")))
                }
                Teacher::Cached(config) => {
                    TeacherBuffers::Cached(CachedTeacher::exact(b, &name, config, tokens, dtype))
                }
                Teacher::Known { keep } => TeacherBuffers::Cached(CachedTeacher::compact(b, &name, keep, tokens)),
                Teacher::Base => TeacherBuffers::Base,
                Teacher::Student => TeacherBuffers::Student,
            };
            (name, buffers)
        };
        let teachers = run.teachers.iter().zip(teachers).enumerate().map(&mut declared).collect();
        let weights = match (&base, &run.adapters) {
            (Some(_), _) => None,
            (None, Some(_)) => {
                let formats = (run.formats, dtype);
                Some(Weights::frozen(b, "student", category::STUDENT_WEIGHTS, config, formats, Passes::Forward))
            }
            (None, None) => Some(Weights::trained(b, "student", config, (run.formats, &run.recipe), run.share)),
        };
        let parameters = run.adapters.clone();
        let adapters = parameters
            .map(|parameters| AdapterWeights::trained(b, "student.adapters", parameters, &run.recipe, run.share));
        let shape = (tokens, run.recipe.seq_len);
        let tables = |weights| Resident::new(b, "student", config, weights, shape);
        let base = weights.map(tables).or(base).expect("a student has weights");
        let student = match &adapters {
            Some(adapters) => Resident { weights: base.weights.clone().adapted(adapters), ..base.clone() },
            None => base.clone(),
        };
        Self { teachers, base, student, adapters }
    }

    /// True if each rank has all master weights of what trains.
    pub fn has_whole_masters(&self) -> bool {
        self.adapters.is_some() || self.base.weights.reads_masters()
    }

    /// Returns the weights that the optimizer updates, the number of their decayed elements, and their sections.
    pub fn trained(&self) -> (Weight, u64, Sections) {
        match &self.adapters {
            Some(adapters) => (adapters.all, adapters.parameters.elems, adapters.parameters.sections()),
            None => {
                let Weights { all, parameters, .. } = &self.base.weights;
                (*all, parameters.decayed, parameters.sections())
            }
        }
    }
}
