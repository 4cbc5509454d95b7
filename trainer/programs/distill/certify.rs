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
use crate::options::{MostKl, RunConfig, UsageError, WeightFormat};
use crate::run::certificate::{Certificate, Measured, Subject, Tally, measure};
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;
use crate::run::record::{CertifiedBy, RunRecord, TeacherCertificate};

/// Knowledge of a teacher.
pub enum Teacher {
    /// As it is to stand in `run.json`; nothing of one that is exact, or of none.
    Known(Option<TeacherCertificate>),
    /// The first batch will tell.
    Unknown(Measuring),
}

/// Criteria by which the first batch's measurement is judged.
pub struct Measuring {
    kernels_sha256: Digest,
    most: MostKl,
}

impl Teacher {
    /// By the certificate that is named, or the record of the run so far.
    ///
    /// # Errors
    /// [`Failure`] of the file, and where the teacher is too far from the exact one.
    pub fn open(
        config: &RunConfig,
        teacher: Option<&Checkpoint>,
        digests: &mut ModelDigests,
        before: Option<&RunRecord>,
        stop: &Stop,
    ) -> Result<Self, Failure> {
        let (Some(teacher), Some(most)) = (teacher, config.max_teacher_kl) else {
            return Ok(Self::Known(None));
        };
        let subject = |weights| Subject::new(teacher, weights, (WeightFormat::Int8, &Formats::int8()));
        if let Some(path) = &config.teacher_certificate {
            let subject = subject(digests.weights.wait(stop)?.teacher.expect("there is a teacher"))?;
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
        let before = before.and_then(|before| before.teacher_certificate.as_ref()?.known());
        if let Some(before) = before.filter(|before| before.kernels_sha256 == Some(kernels_sha256)) {
            let measured = before.measured.check(most)?;
            notes::print(format_args!("int8 teacher, as it was measured: {measured}"));
            return Ok(Self::Known(Some(before.clone())));
        }
        Ok(Self::Unknown(Measuring { kernels_sha256, most }))
    }

    /// Refuses a teacher that nothing is known of and that the run cannot measure.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check_room(&self, config: &RunConfig, session: &Session) -> Result<(), UsageError> {
        match (self, &config.teacher) {
            (Self::Unknown(_), Some(teacher)) if session.plan.certificate.is_none() => {
                Err(unmeasured(teacher, "this run has no room to measure on its first batch what that costs"))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a teacher that the run does not measure, and says how that is done before.
fn unmeasured(teacher: &Path, why: &str) -> UsageError {
    let measure = measure(teacher, Path::new("FILE"));
    UsageError(format!(
        "--teacher-format int8: {why}. Measure it before, and give --teacher-certificate FILE:\n  {measure}"
    ))
}

impl Measuring {
    /// Returns the first micro-batch of a step that has something to measure on.
    ///
    /// # Errors
    /// [`Failure`] where none has.
    pub fn batch(&self, first: &Step, config: &RunConfig) -> Result<MicroBatch, Failure> {
        let mut batches = (0..first.micros()).map(|number| first.micro_batch(number));
        let counts = |batch: &MicroBatch| batch.counted > 0;
        batches.find(counts).ok_or_else(|| match (config.on_policy, &config.teacher) {
            (Some(_), Some(teacher)) => {
                unmeasured(teacher, "no prompt of the first step has a second token to measure on what that costs")
                    .into()
            }
            _ => DataError::nothing_counted(1).into(),
        })
    }

    /// Returns the record of a measurement for `run.json`.
    ///
    /// # Errors
    /// [`RunFault`] where the teacher is too far from the exact one.
    pub fn judge(
        &self,
        batch: &MicroBatch,
        columns: &TokenComparison<Vec<f32>>,
    ) -> Result<TeacherCertificate, RunFault> {
        let mut tally = Tally::default();
        tally.add(&batch.targets, columns);
        let measured = tally.measured().check(self.most)?;
        notes::print(format_args!("int8 teacher, on the first batch: {measured}"));
        Ok(record(CertifiedBy::Text("first batch".to_owned()), self.kernels_sha256, measured))
    }
}

fn record(by: CertifiedBy, kernels_sha256: Digest, measured: Measured) -> TeacherCertificate {
    let format = WeightFormat::Int8.to_string();
    TeacherCertificate { format, kernels_sha256: Some(kernels_sha256), measured, by: Some(by) }
}
