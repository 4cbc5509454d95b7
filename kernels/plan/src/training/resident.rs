//! Declares weights that stay on the device from the first step to the last.

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
    /// The teacher, if it has weights of its own.
    pub teacher: Option<Resident>,
    /// The base of adapters that train in int8.
    pub base: Option<Resident>,
}

impl Frozen {
    pub fn declare(b: &mut Builder, run: &Run<'_>) -> Self {
        let (dtype, seq_len) = (run.dtype(), run.recipe.seq_len);
        let teacher = run.resident_teacher().map(|(config, formats)| {
            let weights =
                Weights::frozen(b, "teacher", category::TEACHER_WEIGHTS, config, (formats, dtype), Passes::Forward);
            Resident::new(b, "teacher", config, weights, seq_len)
        });
        let base = (run.is_int8() && run.adapters.is_some()).then(|| {
            let int8 = (&Formats::int8(), dtype);
            let weights = Weights::frozen(b, "student", category::STUDENT_WEIGHTS, run.student, int8, Passes::Both);
            Resident::new(b, "student", run.student, weights, seq_len)
        });
        Self { teacher, base }
    }
}

/// The models of a run.
pub(super) struct Residents {
    /// The teacher, if it has weights of its own.
    pub teacher: Option<Resident>,
    /// The teacher, if it is cached.
    pub cached: Option<CachedTeacher>,
    /// The student without adapters.
    pub base: Resident,
    pub student: Resident,
    /// The adapters that train, if any.
    pub adapters: Option<AdapterWeights>,
}

impl Residents {
    /// Declares the models not yet declared.
    pub fn declare(b: &mut Builder, run: &Run<'_>, Frozen { teacher, base }: Frozen) -> Self {
        let (config, dtype) = (run.student, run.dtype());
        let cached = match run.teacher {
            Some(Teacher::Cached(config)) => Some(CachedTeacher::exact(b, config, run.recipe.tokens(), dtype)),
            Some(Teacher::Known { keep }) => Some(CachedTeacher::compact(b, keep, run.recipe.tokens())),
            _ => None,
        };
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
        let tables = |weights| Resident::new(b, "student", config, weights, run.recipe.seq_len);
        let base = weights.map(tables).or(base).expect("a student has weights");
        let student = match &adapters {
            Some(adapters) => Resident { weights: base.weights.clone().adapted(adapters), ..base.clone() },
            None => base.clone(),
        };
        Self { teacher, cached, base, student, adapters }
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
