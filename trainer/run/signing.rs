//! `--key`: signs what a command writes.

use std::path::PathBuf;

use precast_fatbins::sign;
use precast_system::input;

use crate::run::failure::Failure;

/// A secret key, which can be used.
pub struct SigningKey {
    path: PathBuf,
    text: String,
}

impl SigningKey {
    /// Reads a secret key as minisign writes it, and tries it: what cannot be used is known before hours of work.
    ///
    /// # Errors
    /// [`Failure::Usage`] of a key that cannot be used, and [`Failure::Io`].
    pub fn open(path: PathBuf) -> Result<Self, Failure> {
        let text = input::read_text(&path, input::SETTINGS_BYTES).map_err(Failure::io("read", &path))?;
        let key = Self { path, text };
        key.sign(b"").map(|_| key)
    }

    /// Returns the text of a `.minisig` of bytes.
    ///
    /// # Errors
    /// [`Failure::Usage`].
    pub fn sign(&self, bytes: &[u8]) -> Result<String, Failure> {
        let unusable = |reason| Failure::usage(format!("--key {}: {reason}", self.path.display()));
        sign(&self.text, bytes, "precast").map_err(unusable)
    }
}
