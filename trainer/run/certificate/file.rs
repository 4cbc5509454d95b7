//! A certificate as a file: what is measured of a model in a form, and of which.

use std::path::Path;

use precast_core::shell::quoted;
use precast_fatbins::Digest;
use precast_kernels::Arch;
use precast_plan::{EvaluationPlan, Formats, HiddenPlan, ModelConfig, Plan, PlanError, Precision, TopTokens, keys};
use precast_system::{files, input};
use serde::{Deserialize, Serialize};

use super::Measured;
use crate::base::difference::Difference;
use crate::base::io::IoError;
use crate::inputs::checkpoint::{Checkpoint, CheckpointError};
use crate::options::{UsageError, WeightFormat};

/// Forms that are as exact as the model's file.
const EXACT: [WeightFormat; 2] = [WeightFormat::Bf16, WeightFormat::Stored];

/// Subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Digest of the model's weights.
    pub weights_sha256: Digest,
    /// Digest of its configuration.
    pub config_sha256: Digest,
    /// The form that is measured.
    pub format: String,
    /// Digest of the sources of the kernels that compute it, on every architecture.
    pub kernels_sha256: Digest,
}

/// Measurements of a model in a form. All else that is recorded is not compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    pub subject: Subject,
    /// The form that it is measured against.
    pub against: String,
    pub measured: Measured,
    /// Tokens that it chooses among.
    pub vocab: u32,
    /// Files of the text.
    pub data: Vec<String>,
    /// Digest of its token ids.
    pub ids_sha256: Digest,
    pub arch: String,
    pub device: String,
    /// Version of the program.
    pub version: String,
    /// Digest of the manifest of the kernels that measured it.
    pub bundle_sha256: Digest,
    /// Digest of the file, with zeros in place of itself: what is changed by hand is no measurement.
    pub sha256: Digest,
}

impl Subject {
    /// A model, with the digest of its weights, in a form.
    ///
    /// # Errors
    /// [`PlanError`] where nothing computes that.
    pub fn new(
        model: &Checkpoint,
        weights_sha256: Digest,
        (format, formats): (WeightFormat, &Formats),
    ) -> Result<Self, PlanError> {
        Ok(Self {
            weights_sha256,
            config_sha256: Digest::of(model.json.to_string().as_bytes()),
            format: format.to_string(),
            kernels_sha256: kernels_sha256(model.config(), formats)?,
        })
    }

    fn differences(&self, was: &Self) -> Vec<Difference> {
        let values = |of: &Self| {
            [
                ("the digest of the weights", of.weights_sha256.to_string()),
                ("the digest of config.json", of.config_sha256.to_string()),
                ("the format", of.format.clone()),
                ("the digest of the kernels' sources", of.kernels_sha256.to_string()),
            ]
        };
        let both = values(was).into_iter().zip(values(self));
        let all = both.map(|((name, was), (_, is))| Difference { name: name.to_owned(), was, is });
        all.filter(|difference| difference.was != difference.is).collect()
    }
}

/// The digest of a file with zeros in place of its own.
fn digest_of(text: &str, own: Digest) -> Digest {
    let own = own.to_string();
    match text.rsplit_once(&own) {
        Some((before, after)) => Digest::of([before, &"0".repeat(own.len()), after].concat().as_bytes()),
        None => Digest::of(text.as_bytes()),
    }
}

/// A digest of the sources of all kernels that compute a model in a form, whatever the architecture.
///
/// # Errors
/// [`PlanError`] where nothing computes it.
fn kernels_sha256(config: &ModelConfig, formats: &Formats) -> Result<Digest, PlanError> {
    let two = &config.representative();
    let plan = EvaluationPlan::with_formats((two, formats), (1, 16), Precision::Bf16, Arch::Sim)?.plan;
    Ok(sources_sha256("precast.certificate", &plan))
}

/// A digest of the sources of all kernels that compute a model's last hidden states, or its most likely
/// tokens, whatever the architecture.
///
/// # Errors
/// [`PlanError`] where nothing computes them.
pub fn hidden_kernels_sha256(
    config: &ModelConfig,
    precision: Precision,
    top: Option<TopTokens>,
) -> Result<Digest, PlanError> {
    let two = &config.representative();
    let plan = HiddenPlan::new((two, &Formats::dense()), (1, 16), (precision, top), Arch::Sim)?.plan;
    Ok(sources_sha256("precast.hidden", &plan))
}

/// Hashes the sources of a plan's kernels on every architecture.
fn sources_sha256(domain: &str, plan: &Plan) -> Digest {
    let keys = keys(plan).into_iter().map(|pair| pair.key);
    let sources = keys.flat_map(|key| {
        let of = |arch| key.built(arch).map(|pair| pair.source_digest(arch)).collect::<Vec<_>>();
        Arch::GPUS.into_iter().flat_map(of).collect::<Vec<_>>()
    });
    let sources: Vec<Digest> = sources.collect();
    Digest::of_parts(domain, sources.iter().map(|digest| &digest.0[..]))
}

/// The command that measures a teacher and writes its certificate.
pub fn measure(teacher: &Path, out: &Path) -> String {
    let [teacher, out] = [teacher, out].map(|path| quoted(&path.display().to_string()));
    format!("precast eval compare --model {teacher} --format int8 --against bf16 --data DATA --out {out}")
}

impl Certificate {
    /// Reads one of a teacher, and checks that it is of this.
    ///
    /// # Errors
    /// [`CheckpointError::Wrong`].
    pub fn read(path: &Path, teacher: &Checkpoint, subject: &Subject) -> Result<Self, CheckpointError> {
        let unusable = |reason: String| {
            let (path_text, measure) = (path.display(), measure(teacher.path(), path));
            CheckpointError::Wrong(format!("--teacher-certificate {path_text}{reason}\nMeasure it again:\n  {measure}"))
        };
        let unreadable = |reason: String| unusable(format!(": {reason}"));
        let text = input::read_text(path, input::SETTINGS_BYTES);
        let text = text.map_err(|error| unreadable(format!("cannot read it: {error}")))?;
        let certificate: Self =
            serde_json::from_str(&text).map_err(|error| unreadable(format!("it is no certificate: {error}")))?;
        let differences = subject.differences(&certificate.subject);
        if !differences.is_empty() {
            let differences = differences.iter().map(|difference| format!("\n  {difference}"));
            return Err(unusable(differences.fold(" measures something else:".to_owned(), |all, one| all + &one)));
        }
        match certificate.fault(&text, teacher.config().vocab) {
            Some(reason) => Err(unreadable(reason)),
            None => Ok(certificate),
        }
    }

    /// Says why it cannot be of a teacher that chooses among so many tokens; none where it can.
    fn fault(&self, text: &str, vocab: u32) -> Option<String> {
        let Self { measured, against, .. } = self;
        if self.vocab != vocab {
            return Some(format!("its vocabulary has {} tokens, and the teacher's has {vocab}", self.vocab));
        }
        if !EXACT.map(|format| format.to_string()).contains(against) {
            return Some(format!("it is against {against}: expected an exact form, {} or {}", EXACT[0], EXACT[1]));
        }
        if let Some(reason) = measured.fault() {
            return Some(reason);
        }
        let found = digest_of(text, self.sha256);
        (found != self.sha256).then(|| {
            format!("it was changed since it was written: its SHA-256 is {found}, and it says {}", self.sha256)
        })
    }

    /// Gives it its digest, which is of the text that [`Self::write`] writes.
    #[must_use]
    pub fn with_digest(self) -> Self {
        let zeros = Self { sha256: Digest([0; 32]), ..self };
        let sha256 = Digest::of(zeros.text().as_bytes());
        Self { sha256, ..zeros }
    }

    fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data serializes") + "\n"
    }

    /// Refuses to replace a file that is no certificate.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check_replaceable(path: &Path) -> Result<(), UsageError> {
        let is_one =
            || -> Option<Self> { serde_json::from_str(&input::read_text(path, input::SETTINGS_BYTES).ok()?).ok() };
        if !path.exists() || is_one().is_some() {
            return Ok(());
        }
        Err(UsageError(format!("--out {}: it is there and no certificate: name another file", path.display())))
    }

    /// Writes it whole or not at all.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn write(&self, path: &Path) -> Result<(), IoError> {
        files::write_whole(path, self.text().as_bytes()).map_err(IoError::of("write", path))
    }
}
