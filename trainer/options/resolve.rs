//! Resolves options into the configuration of a run: one function, which opens no file.

use std::path::{Path, PathBuf};

use itertools::Itertools;
use precast_plan::{Objective, Share};

use super::groups::{ModelOptions, OnPolicyOptions, Options, PackingOptions, TeachingOptions};
use super::teachers::{BASE, SELF};
use super::usage::{UsageError, first_asked, missing};
use super::{Asked, Given, Length, RunConfig, TaughtBy, TeacherChoice, TeacherSource, Teachers};
use crate::inputs::data::Packing;
use crate::inputs::teacher_cache;

/// The purpose of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A run: it needs data and an output directory.
    Run,
    /// A plan or a measurement of one.
    Plan,
}

impl Purpose {
    /// Returns the output directory, which a run needs.
    fn out(self, given: Option<PathBuf>) -> Result<PathBuf, UsageError> {
        match self {
            Self::Run => given.ok_or_else(|| missing("out")),
            Self::Plan => Ok(given.unwrap_or_default()),
        }
    }
}

/// Values that a run that continues takes over, unless others are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Before {
    pub steps: u64,
    pub replicas: u32,
    pub packing: Packing,
}

impl Options {
    /// The configuration of a plan for one rank.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn planned(&self) -> Result<RunConfig, UsageError> {
        self.resolve(Purpose::Plan, Share::ALONE, None)
    }

    /// The configuration of the rank that `of` names, of --model alone or of a teacher and a student. `before` is of
    /// the run that continues.
    ///
    /// # Errors
    /// [`UsageError`] for what is missing, and for options that do not go together.
    pub fn resolve(&self, purpose: Purpose, of: Share, before: Option<Before>) -> Result<RunConfig, UsageError> {
        let Self { models, data, out, eval_data, teaching, adapting, shape, optimizer, arithmetic, .. } = self.clone();
        let precision = arithmetic.precision;
        let adapter = adapting.choice()?;
        let student_format = adapting.student_format(adapter.as_ref(), precision)?;
        arithmetic.check_ship(adapter.is_some())?;
        let certified = teaching.certified(precision);
        let TeachingOptions { teacher, teacher_certificate, untrained, allow_identical, .. } = teaching;
        let teacher_format = teacher.teacher_format.unwrap_or_default();
        let writes = self.writes()?;
        self.check_cached()?;
        let (teachers, student, objective) = match models.model {
            Some(model) => {
                self.check_untaught()?;
                (Teachers::default(), model, Objective::CrossEntropy)
            }
            None => {
                if models.teacher.is_empty() && models.teacher_cache.is_empty() {
                    return Err(missing("teacher"));
                }
                let student = models.student.ok_or_else(|| missing("student"))?;
                (self.teachers(&student)?, student, self.distilling())
            }
        };
        let is_on_device = self.have_weights(&teachers)?;
        let max_teacher_kl = certified?.filter(|_| objective.has_teacher());
        let out = purpose.out(out)?;
        if purpose == Purpose::Run && data.is_empty() {
            return Err(missing("data"));
        }
        let length = match purpose {
            Purpose::Run => self.length(before)?,
            Purpose::Plan => Length::Steps { steps: self.steps.value },
        };
        let division = self.division.resolve(of, before.map(|before| before.replicas))?;
        let on_policy = self.on_policy.resolve(objective, shape, division)?;
        let completions = || self.on_policy.completions.resolve(arithmetic.gemm, shape.seq_len, self.order.seed);
        let completions = writes.then(completions).transpose()?;
        let packing = self.packing(before)?;
        let mut output = self.output.clone();
        output.check_held_out(&eval_data)?;
        output.guard_every = output.guard(precision, adapter.as_ref())?;
        Ok(RunConfig {
            teachers,
            own_prompts: false,
            student,
            data,
            eval_data,
            out,
            objective,
            on_policy,
            completions,
            teacher_format: is_on_device.then_some(teacher_format),
            teacher_certificate,
            max_teacher_kl,
            adapter,
            student_format,
            untrained,
            allow_identical,
            length,
            shape,
            division,
            optimizer,
            arithmetic,
            text: self.text.clone(),
            packing,
            order: self.order,
            target: self.target.clone(),
            tuning: self.tuning.clone(),
            output,
        })
    }

    /// Returns the objective of a run with a teacher.
    fn distilling(&self) -> Objective {
        let TeachingOptions { alpha, temperature, teacher, .. } = &self.teaching;
        // What the student writes is no data to learn by heart: of each token the divergence from the teacher counts.
        let value = |option: &Given<f32>| match self.on_policy.on_policy {
            Some(_) if !option.is_asked() => 1.0,
            _ => option.value,
        };
        Objective::Distill { alpha: value(alpha), temperature: value(temperature), beta: value(&teacher.beta) }
    }

    /// Returns the teachers of a student.
    ///
    /// # Errors
    /// [`UsageError`] for what does not go with them.
    fn teachers(&self, student: &Path) -> Result<Teachers, UsageError> {
        let ModelOptions { teacher: models, teacher_cache: caches, .. } = &self.models;
        for (flag, list) in [("--teacher", models), ("--teacher-cache", caches)] {
            let twice =
                list.iter().tuple_combinations().find(|(one, other)| one.name.is_none() && other.name.is_none());
            if let Some((one, other)) = twice {
                let (one, other) = (one.path.display(), other.path.display());
                return Err(UsageError(format!(
                    "{flag} {one} and {flag} {other}: several teachers have names: give each one, as {flag} \
                    math={one}, and each source of data its teacher's, as --data PATH@math"
                )));
            }
        }
        let own = models.iter().map(|model| Ok((model, self.own_teacher(model)?)));
        let own: Vec<(&TeacherSource, Option<TaughtBy>)> = own.collect::<Result<_, UsageError>>()?;
        let is_of = |cache: &TeacherSource, model: &TeacherSource| cache.name == model.name;
        let mut teachers: Vec<TeacherChoice> = Vec::new();
        for (model, own) in &own {
            // The model of a cache, not a teacher beside it.
            if own.is_none() && caches.iter().any(|cache| is_of(cache, model)) {
                continue;
            }
            let path = if own.is_some() { student } else { &model.path };
            let by = own.clone().unwrap_or(TaughtBy::Weights);
            teachers.push(TeacherChoice { name: model.name.clone(), path: path.to_owned(), by });
        }
        for cache in caches {
            let of = models.iter().find(|model| is_of(cache, model)).map(|model| model.path.clone());
            let by = TaughtBy::Cache { directory: cache.path.clone(), of };
            teachers.push(TeacherChoice { name: cache.name.clone(), path: teacher_cache::model(&cache.path), by });
        }
        let teachers = Teachers(teachers);
        teachers.check_names()?;
        Ok(teachers)
    }

    /// True if any teacher has weights of its own.
    ///
    /// # Errors
    /// [`UsageError`] for options of weights that no teacher has, and of a single teacher where there are several.
    fn have_weights(&self, teachers: &Teachers) -> Result<bool, UsageError> {
        let has_weights = teachers.iter().any(|teacher| teacher.by == TaughtBy::Weights);
        if let Some(option) = self.teaching.first_of_weights().filter(|_| !teachers.is_empty() && !has_weights) {
            return Err(UsageError(format!(
                "{option} is of teachers with weights of their own, and here is none: leave it out"
            )));
        }
        match self.teaching.teacher_certificate.as_ref().filter(|_| teachers.len() > 1) {
            None => Ok(has_weights),
            Some(certificate) => Err(UsageError(format!(
                "--teacher-certificate {} is of one teacher, and here are several, each of which is measured on the \
                first batch: leave it out",
                certificate.display()
            ))),
        }
    }

    /// Returns which of the student's own weights teach, where they do.
    ///
    /// # Errors
    /// [`UsageError`] for what does not go with that.
    fn own_teacher(&self, model: &TeacherSource) -> Result<Option<TaughtBy>, UsageError> {
        let (name, own) = match model.path.to_str() {
            Some(SELF) => (SELF, TaughtBy::Student),
            Some(BASE) => (BASE, TaughtBy::Base),
            _ => return Ok(None),
        };
        let teacher = format!("--teacher {name}");
        if self.models.teacher_cache.iter().any(|cache| cache.name == model.name) {
            return Err(UsageError(format!(
                "{teacher} teaches by the weights of the run, and --teacher-cache by what another model said: leave \
                one of them out"
            )));
        }
        let is_alone = self.models.teacher.len() == 1;
        if let Some(option) = self.teaching.first_of_weights().filter(|_| is_alone) {
            return Err(UsageError(format!(
                "{option} cannot be combined with {teacher}, whose weights are in memory in the student's form: leave \
                {option} out"
            )));
        }
        if own == TaughtBy::Base && self.adapting.choice()?.is_none() {
            return Err(UsageError(format!(
                "{teacher} is the frozen model of an adapter, and here all weights train: give --lora-rank or \
                --adapter, or --teacher {SELF}"
            )));
        }
        Ok(Some(own))
    }

    /// Refuses options of a teacher beside --model.
    fn check_untaught(&self) -> Result<(), UsageError> {
        let ModelOptions { teacher, teacher_cache, student, model: _ } = &self.models;
        let OnPolicyOptions { on_policy, completions, .. } = &self.on_policy;
        let option = first_asked!(teacher, teacher_cache, student, on_policy)
            .or_else(|| self.teaching.first_asked())
            .or_else(|| self.on_policy.first_of_steps())
            .or_else(|| completions.first_asked());
        let refuse = |option| {
            Err(UsageError(format!(
                "{option} cannot be combined with --model, which trains without a teacher: leave {option} out, or \
                give --teacher \
                 and --student in place of --model"
            )))
        };
        option.map_or(Ok(()), refuse)
    }

    /// Returns true if the student writes completions: to train on them, or of held-out prompts where an option of
    /// completions is given.
    ///
    /// # Errors
    /// [`UsageError`] for such an option where it writes none.
    pub(super) fn writes(&self) -> Result<bool, UsageError> {
        if self.on_policy.on_policy.is_some() || self.models.model.is_some() {
            return Ok(self.on_policy.on_policy.is_some());
        }
        let refuse = |option: String, or| Err(UsageError(format!("{option} requires --on-policy{or}")));
        match (self.on_policy.first_of_steps(), self.on_policy.completions.first_asked()) {
            (Some(option), _) => refuse(option, ""),
            (None, Some(option)) if self.eval_data.is_empty() => {
                refuse(option, ", or --eval-data with prompts to complete")
            }
            (None, option) => Ok(option.is_some()),
        }
    }

    /// Returns the packing that is asked for: that of the run that continues, where none is given.
    fn packing(&self, before: Option<Before>) -> Result<PackingOptions, UsageError> {
        let packing = match (self.packing.packing, self.on_policy.on_policy) {
            (Some(_), Some(_)) => {
                return Err(UsageError(
                    "--packing is of data, and --on-policy trains on what the student writes: leave --packing out"
                        .to_owned(),
                ));
            }
            (None, None) => before.map(|before| before.packing),
            (asked, _) => asked,
        };
        Ok(PackingOptions { packing })
    }

    /// Returns the length of the run: that of the run that continues, where none is given.
    fn length(&self, before: Option<Before>) -> Result<Length, UsageError> {
        match (self.epochs, before) {
            (Some(_), _) if self.steps.is_asked() => {
                Err(UsageError("--epochs and --steps each say how long the run is: leave one of them out".to_owned()))
            }
            (Some(epochs), _) => Ok(Length::Epochs { epochs: epochs.value }),
            (None, Some(before)) if !self.steps.is_asked() => Ok(Length::Steps { steps: before.steps }),
            (None, _) => Ok(Length::Steps { steps: self.steps.value }),
        }
    }
}
