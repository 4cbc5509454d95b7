//! What a run's options come to: either a teacher and its student, or a model alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use precast_plan::{Objective, Precision, Share};

use super::asked::{Adapting, Options, Settings, Source, Teaching};
use super::flags::{flag, is_of_teacher};
use super::{GivenShare, RunConfig, UsageError};
use crate::inputs::adapter::{AdapterChoice, Lora};
use crate::options::MostKl;
use crate::options::WeightFormat;

impl Options {
    /// The configuration of a run: of --model alone, or of a teacher and a student. `needs_run` asks for data and an output
    /// directory too.
    ///
    /// # Errors
    /// [`UsageError`] for what is missing, and for an option of a teacher where there is none.
    pub fn complete(self, needs_run: bool) -> Result<RunConfig, UsageError> {
        let given = GivenShare::of(&self);
        let adapter = self.adapting.choice(&self.given)?;
        let student_format = self.adapting.student_format(adapter.is_some(), self.settings.precision)?;
        let certified = self.teaching.certified(self.settings.precision);
        let Teaching {
            alpha, temperature, beta, teacher_format, teacher_certificate, untrained, allow_identical, ..
        } = self.teaching;
        let (teacher, student, objective) = match self.model {
            Some(model) => {
                if let Some(name) = self.given.keys().find(|name| is_of_teacher(name)) {
                    return Err(without_teacher(name));
                }
                (None, model, Objective::CrossEntropy)
            }
            None => (
                Some(self.teacher.ok_or_else(|| missing("teacher"))?),
                self.student.ok_or_else(|| missing("student"))?,
                Objective::Distill { alpha, temperature, beta },
            ),
        };
        let max_teacher_kl = certified?.filter(|_| objective.has_teacher());
        let out = match self.out {
            Some(out) => out,
            None if needs_run => return Err(missing("out")),
            None => PathBuf::new(),
        };
        if needs_run && self.data.is_empty() {
            return Err(missing("data"));
        }
        let teacher_format = objective.has_teacher().then_some(teacher_format);
        if self.settings.eval_every > 0 && self.eval_data.is_empty() {
            return Err(UsageError("--eval-every needs data to compute the loss of: give --eval-data".to_owned()));
        }
        let (data, eval_data, mut settings) = (self.data, self.eval_data, self.settings);
        settings.guard_every = settings.guard(adapter.is_some())?;
        let mut config = RunConfig {
            teacher,
            student,
            data,
            eval_data,
            out,
            objective,
            teacher_format,
            teacher_certificate,
            max_teacher_kl,
            adapter,
            student_format,
            untrained,
            allow_identical,
            settings,
            share: Share::ALONE,
        };
        config.take_share(Share::ALONE, given, None).map(|()| config)
    }
}

impl Teaching {
    /// How far from the exact one a teacher may be that is not; none of one that is exact.
    fn certified(&self, precision: Precision) -> Result<Option<MostKl>, UsageError> {
        if self.teacher_format.is_exact() {
            let certificate = self.teacher_certificate.as_ref().map(|_| "--teacher-certificate");
            return match certificate.or(self.max_teacher_kl.map(|_| "--max-teacher-kl")) {
                Some(option) => Err(UsageError(format!(
                    "{option} is of a teacher that is not exact, and --teacher-format {} is: leave it out, or give \
                     --teacher-format int8",
                    self.teacher_format
                ))),
                None => Ok(None),
            };
        }
        if precision == Precision::Fp32 {
            return Err(UsageError(format!(
                "--teacher-format int8 gives bf16: it cannot be combined with --precision {precision}. Use --precision bf16 or int8, or \
                 --teacher-format bf16 or stored"
            )));
        }
        Ok(Some(self.max_teacher_kl.unwrap_or_default()))
    }
}

impl Adapting {
    /// The adapter that trains; none where the student itself does.
    fn choice(&self, given: &BTreeMap<String, Source>) -> Result<Option<AdapterChoice>, UsageError> {
        let of_new = ["lora_rank", "lora_alpha", "lora_targets", "lora_rslora"];
        let of_new = of_new.into_iter().find(|name| given.contains_key(*name)).map(flag);
        match (self.lora_rank, &self.adapter, of_new) {
            (_, Some(_), Some(option)) => Err(UsageError(format!(
                "{option} is of a new adapter, and --adapter goes on from one that is there, whose adapter_config.json says the \
                 same: leave one of them out"
            ))),
            (None, None, Some(option)) => {
                Err(UsageError(format!("{option} is of a new adapter: give --lora-rank too")))
            }
            (_, Some(directory), None) => Ok(Some(AdapterChoice::From { directory: directory.clone() })),
            (None | Some(0), None, _) => Ok(None),
            (Some(rank), None, _) => Ok(Some(AdapterChoice::New(Lora {
                rank,
                alpha: self.lora_alpha.unwrap_or(2.0 * f64::from(rank)),
                targets: self.lora_targets.iter().copied().collect(),
                rslora: self.lora_rslora,
            }))),
        }
    }

    /// How a frozen student lives on the device; none where it trains.
    fn student_format(&self, is_frozen: bool, precision: Precision) -> Result<Option<WeightFormat>, UsageError> {
        match (is_frozen, self.student_format) {
            (true, Some(WeightFormat::Bf16)) if precision == Precision::Int8 => Err(UsageError(
                "--student-format bf16 cannot be combined with --precision int8, under which the base of an adapter is in int8: \
                 leave --student-format out, or use --precision bf16"
                    .to_owned(),
            )),
            (true, format) => Ok(Some(format.unwrap_or(WeightFormat::Bf16))),
            (false, Some(WeightFormat::Stored | WeightFormat::Int8)) => Err(UsageError(
                "--student-format stored is of a student that stays as it is, and this one trains: give --lora-rank or \
                 --adapter to train an adapter of it, or leave --student-format out"
                    .to_owned(),
            )),
            (false, _) => Ok(None),
        }
    }
}

/// Steps between comparisons of gradients where nothing is said.
const GUARD_EVERY: u64 = 100;

impl Settings {
    /// The learning rate of a step, from 0.
    pub fn lr_of(&self, step: u64) -> f64 {
        self.schedule.lr(self.lr, step, self.warmup, self.steps)
    }

    /// What people should know of a warm-up that the run does not end.
    pub fn warmup_note(&self) -> Option<String> {
        let Self { warmup, steps, lr, .. } = self;
        (warmup > steps).then(|| {
            format!(
                "--warmup {warmup} is above --steps {steps}: the learning rate ends at {:.2e} and never comes to --lr {lr:e}; give a \
                 warm-up below the number of steps",
                lr * *steps as f64 / *warmup as f64
            )
        })
    }

    /// Steps between comparisons of int8's gradients with bf16's; none of a run that has none to compare.
    fn guard(&self, has_adapter: bool) -> Result<Option<u64>, UsageError> {
        let why = match (self.precision, has_adapter) {
            (Precision::Int8, false) => return Ok(Some(self.guard_every.unwrap_or(GUARD_EVERY))),
            (Precision::Int8, true) => "of a student that trains, and here an adapter of it does".to_owned(),
            (precision, _) => format!("of --precision int8, and this is --precision {precision}"),
        };
        match self.guard_every {
            Some(_) => Err(UsageError(format!("--guard-every compares gradients {why}: leave it out"))),
            None => Ok(None),
        }
    }
}

/// An option that a run cannot do without.
pub fn missing(name: &str) -> UsageError {
    UsageError(format!("{} is missing: give it as a flag or in --config run.toml", flag(name)))
}

fn without_teacher(name: &str) -> UsageError {
    let option = flag(name);
    UsageError(format!(
        "{option} is of a run with a teacher, and --model trains without one: leave {option} out, or give --teacher and \
         --student in place of --model"
    ))
}
