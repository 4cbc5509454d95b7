//! Options of the device and its kernels.

use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::{SignatureError, TrustedKey};
use serde::Serialize;

use super::Change;
use crate::base::record_text::{display, path_or_none};
use crate::options::{DeviceChoice, UsageError};

/// Device that runs a plan, and its kernels.
#[derive(Args, Clone, Debug, Serialize)]
#[command(next_help_heading = "Device")]
pub struct DeviceOptions {
    /// auto, cuda:N, portable:N, as:ARCH, sim
    ///
    /// auto is the first GPU, and sim where there is neither a GPU nor kernels for one. portable:N is cuda:N with the
    /// kernels that every architecture has, as measured there; as:ARCH, with the launches of ARCH, for whose GPUs it
    /// stands in.
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto, add = Change::AtResume)]
    #[serde(serialize_with = "display")]
    pub device: DeviceChoice,
    #[command(flatten)]
    #[serde(flatten)]
    pub kernels: Kernels,
}

/// Selection of the variants of kernels.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Device")]
pub struct TuningOptions {
    /// Table of times that selects variants of kernels
    ///
    /// precast bench tune FILE writes it on the device at hand. All variants are in the bundle, and a table selects
    /// those that give the same bits.
    #[arg(long, value_name = "FILE", add = Change::OnAnyHost)]
    #[serde(serialize_with = "path_or_none", skip_serializing_if = "Option::is_none")]
    pub tuned: Option<PathBuf>,
}

/// The kernels a run may use: a bundle file, and whose signature it must carry.
#[derive(Args, Clone, Debug, Default, Serialize)]
#[command(next_help_heading = "Device")]
pub struct Kernels {
    /// Bundle of kernels to use instead of the embedded ones
    #[arg(long, value_name = "FILE", add = Change::OnAnyHost)]
    #[serde(serialize_with = "path_or_none")]
    pub bundle: Option<PathBuf>,
    /// Refuse a --bundle or a teacher's cache that this minisign key did not sign: base64 or a .pub file; repeatable
    /// [default: the keys in $PRECAST_TRUSTED_KEY, separated by blanks]
    #[arg(long, value_name = "KEY", value_parser = key, add = Change::OnAnyHost)]
    pub trusted_key: Vec<String>,
}

/// Refuses what is no key, also where there is nothing that it could have signed.
fn key(text: &str) -> Result<String, SignatureError> {
    TrustedKey::find(text).map(|_| text.to_owned())
}

impl Kernels {
    /// Returns the files that are read: the bundle, and keys.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let keys = self.trusted_key.iter().map(Path::new).filter(|key| key.exists());
        self.bundle.as_deref().into_iter().chain(keys)
    }

    /// The trusted keys.
    ///
    /// # Errors
    /// [`UsageError`] for text that is no key.
    pub fn keys(&self) -> Result<Vec<TrustedKey>, UsageError> {
        let environment = std::env::var("PRECAST_TRUSTED_KEY").unwrap_or_default();
        let texts = match self.trusted_key.is_empty() {
            true => environment.split_whitespace().map(str::to_owned).collect(),
            false => self.trusted_key.clone(),
        };
        let find = |text: &String| TrustedKey::find(text).map_err(|error| UsageError(error.to_string()));
        texts.iter().map(find).collect()
    }
}
