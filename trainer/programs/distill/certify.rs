//! A teacher that is not exact: what that costs is known before the first step, by a file, by the run so far, or
//! measured on the first batch.

use std::path::Path;

use precast_fatbins::Digest;
use precast_plan::{Formats, TokenComparison};
use precast_system::files;
use serde_json::json;

use super::digests::ModelDigests;
use crate::base::notes;
use crate::base::stop::Stop;
use crate::device::session::Session;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{DataError, MicroBatch, Step};
use crate::options::{MostKl, RunConfig, TaughtBy, TeacherChoice, UsageError, WeightFormat};
use crate::run::certificate::{Certificate, Measured, Subject, Tally, measure};
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;
use crate::run::record::{CertifiedBy, Known, RunRecord, TeacherCertificate};

/// Knowledge of the teachers of a run, by their numbers.
pub struct Certified(Vec<Teacher>);

/// Knowledge of a teacher.
enum Teacher {
    /// As it is to stand in `run.json`; nothing of one that is exact, or of none.
    Known(Option<TeacherCertificate>),
    /// The first batch will tell.
    Unknown(Measuring),
}

/// Criteria by which the first batch's measurement is judged.
struct Measuring {
    kernels_sha256: Digest,
    most: MostKl,
}

impl Certified {
    /// Looks each teacher up in the certificate that is named, or in the record of the run so far.
    ///
    /// # Errors
    /// [`Failure`] of the file, and where a teacher is too far from the exact one.
    pub fn open(
        config: &RunConfig,
        teachers: &[Checkpoint],
        digests: &mut ModelDigests,
        before: Option<&RunRecord>,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let open = |(number, teacher)| Teacher::open((config, number), teacher, digests, before, stop);
        teachers.iter().enumerate().map(open).collect::<Result<_, Failure>>().map(Self)
    }

    /// True if the first batch will tell.
    pub fn measures(&self) -> bool {
        self.0.iter().any(|teacher| matches!(teacher, Teacher::Unknown(_)))
    }

    /// Refuses a teacher that nothing is known of and that the run cannot measure.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check_room(&self, config: &RunConfig, session: &Session) -> Result<(), UsageError> {
        let of_plan = self.0.iter().zip(&session.plan.certificates).zip(config.teachers.iter());
        let unknown = of_plan.filter(|((teacher, room), _)| matches!(teacher, Teacher::Unknown(_)) && room.is_none());
        let why = "this run has no room to measure on its first batch what that costs";
        unknown.map(|(_, teacher)| unmeasured(config, teacher, why)).next().map_or(Ok(()), Err)
    }

    /// Returns for each teacher the first micro-batch of its own that has something to measure on, else of any.
    ///
    /// # Errors
    /// [`Failure`] where none has.
    pub fn batches(&self, first: &Step, config: &RunConfig) -> Result<Vec<MicroBatch>, Failure> {
        (0..self.0.len()).map(|teacher| Self::batch(first, config, teacher)).collect()
    }

    fn batch(first: &Step, config: &RunConfig, teacher: usize) -> Result<MicroBatch, Failure> {
        let all = || (0..first.micros()).map(|number| first.micro_batch(number)).filter(|batch| batch.counted > 0);
        let found = all().find(|batch| batch.teacher == teacher).or_else(|| all().next());
        let why = "no prompt of the first step has a second token to measure on what that costs";
        found.ok_or_else(|| match config.on_policy {
            Some(_) => unmeasured(config, &config.teachers[teacher], why).into(),
            None => DataError::nothing_counted(1).into(),
        })
    }

    /// Returns the records of the teachers that are not exact for `run.json`, with what was measured of those that
    /// nothing was known of.
    ///
    /// # Errors
    /// [`RunFault`] where a teacher is too far from the exact one.
    pub fn judge(
        self,
        config: &RunConfig,
        batches: &[MicroBatch],
        columns: &[Option<TokenComparison<Vec<f32>>>],
    ) -> Result<Vec<Option<TeacherCertificate>>, RunFault> {
        let each = self.0.into_iter().zip(columns).zip(batches).zip(config.teachers.iter());
        let judged = each.map(|(((teacher, columns), batch), choice)| match (teacher, columns) {
            (Teacher::Unknown(measuring), Some(columns)) => measuring.judge(&choice.role(), batch, columns).map(Some),
            (Teacher::Known(known), _) => Ok(known),
            (Teacher::Unknown(_), None) => unreachable!("a run without room to measure is refused"),
        });
        judged.collect()
    }

    /// Returns the records of the teachers that are not exact for `run.json`.
    pub fn known(self) -> Vec<Option<TeacherCertificate>> {
        self.0.into_iter().map(|teacher| if let Teacher::Known(known) = teacher { known } else { None }).collect()
    }
}

impl Teacher {
    /// Looks a teacher up in the certificate that is named, or in the record of the run so far.
    ///
    /// # Errors
    /// [`Failure`] of the file, and where the teacher is too far from the exact one.
    fn open(
        (config, number): (&RunConfig, usize),
        teacher: &Checkpoint,
        digests: &mut ModelDigests,
        before: Option<&RunRecord>,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let choice = &config.teachers[number];
        // What a cache holds was computed by the exact one, and the student's own weights are what they are.
        let Some(most) = config.max_teacher_kl.filter(|_| choice.by == TaughtBy::Weights) else {
            return Ok(Self::Known(None));
        };
        let subject = |weights| Subject::new(teacher, weights, (WeightFormat::Int8, &Formats::int8()));
        if let Some(path) = &config.teacher_certificate {
            let subject = subject(digests.weights.wait(stop)?.teachers[number])?;
            let certificate = Certificate::read(path, teacher, &subject)?;
            let measured = certificate.measured.check(most)?;
            let path_text = path.display().to_string();
            notes::print(format_args!("int8 teacher, by {path_text}: {measured}"));
            let sha256 = files::digest(path).map_err(Failure::io("read", path))?.to_string();
            let content = [("sha256".to_owned(), json!(sha256)), ("certificate".to_owned(), json!(certificate))];
            let by = CertifiedBy::File { file: path_text, content: content.into_iter().collect() };
            return Ok(Self::Known(Some(record(by, subject.kernels_sha256, measured))));
        }
        // Everything else that the measurement depends on is the same in a run that continues.
        let kernels_sha256 = subject(Digest::of(b""))?.kernels_sha256;
        let before = before.and_then(|before| before.teacher(choice.name.as_deref()).certificate);
        let before = before.as_ref().and_then(Known::known);
        if let Some(before) = before.filter(|before| before.kernels_sha256 == Some(kernels_sha256)) {
            let measured = before.measured.check(most)?;
            notes::print(format_args!("int8 {}, as it was measured: {measured}", choice.role()));
            return Ok(Self::Known(Some(before.clone())));
        }
        Ok(Self::Unknown(Measuring { kernels_sha256, most }))
    }
}

/// Refuses a teacher that the run does not measure, and says how that is done before.
fn unmeasured(config: &RunConfig, teacher: &TeacherChoice, why: &str) -> UsageError {
    // A certificate is of one teacher.
    if config.teachers.len() > 1 {
        let role = teacher.role();
        return UsageError(format!("--teacher-format int8: {why} of {role}. Use --teacher-format bf16 or stored"));
    }
    let measure = measure(&teacher.path, Path::new("FILE"));
    UsageError(format!(
        "--teacher-format int8: {why}. Measure it before, and give --teacher-certificate FILE:\n  {measure}"
    ))
}

impl Measuring {
    /// Returns the record of a measurement for `run.json`.
    ///
    /// # Errors
    /// [`RunFault`] where the teacher is too far from the exact one.
    fn judge(
        &self,
        role: &str,
        batch: &MicroBatch,
        columns: &TokenComparison<Vec<f32>>,
    ) -> Result<TeacherCertificate, RunFault> {
        let mut tally = Tally::default();
        tally.add(&batch.targets, columns);
        let measured = tally.measured().check(self.most)?;
        notes::print(format_args!("int8 {role}, on the first batch: {measured}"));
        Ok(record(CertifiedBy::Text("first batch".to_owned()), self.kernels_sha256, measured))
    }
}

fn record(by: CertifiedBy, kernels_sha256: Digest, measured: Measured) -> TeacherCertificate {
    let format = WeightFormat::Int8.to_string();
    TeacherCertificate { format, kernels_sha256: Some(kernels_sha256), measured, by: Some(by) }
}
