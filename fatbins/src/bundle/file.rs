//! Reads bundle files and their signatures.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use precast_core::Kernels;
use precast_system::input;

use super::error::BundleError;
use super::read::Bundle;
use crate::trust::{SignatureError, TrustedKey, signature_path};

/// Size limit of a bundle, far above the kernels of large programs.
const MOST_BYTES: u64 = 4 << 30;

/// A bundle file in memory, with its detached signature.
#[derive(Clone, Debug)]
pub struct BundleFile {
    /// Path of the file, for messages.
    pub path: PathBuf,
    /// Content of the file.
    pub bytes: Vec<u8>,
    /// Text of `FILE.minisig`, if present.
    pub signature: Option<String>,
}

impl BundleFile {
    /// Reads a bundle and its signature.
    ///
    /// # Errors
    /// Any I/O error but a missing signature.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = input::read(path, MOST_BYTES)?;
        let signature = match input::read(&signature_path(path), input::SETTINGS_BYTES) {
            // Kept even if it is not text, to be refused.
            Ok(signature) => Some(String::from_utf8_lossy(&signature).into_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(Self { path: path.to_owned(), bytes, signature })
    }

    /// Checks the signature over the whole file if a key is trusted, then reads the bundle.
    ///
    /// # Errors
    /// [`BundleError`]: no part of the file may be used.
    pub fn open<K: AsRef<Kernels>>(
        &self,
        keys: &[TrustedKey],
        kernels: &'static K,
    ) -> Result<Bundle<'_, K>, BundleError> {
        self.signer(keys)?;
        Bundle::read(&self.bytes, kernels)
    }

    /// Returns the trusted key that signed the file; none if no key is trusted.
    ///
    /// # Errors
    /// [`SignatureError`] if keys are trusted and none signed it.
    pub fn signer<'k>(&self, keys: &'k [TrustedKey]) -> Result<Option<&'k TrustedKey>, SignatureError> {
        if keys.is_empty() {
            return Ok(None);
        }
        let path = signature_path(&self.path);
        TrustedKey::check(keys, &self.bytes, self.signature.as_deref(), &path).map(Some)
    }
}
