//! Decodes an untrusted manifest.

use precast_core::Arch;
use serde::Deserialize;

use crate::Digest;
use crate::manifest::{MAGIC, Manifest, ManifestError, OLDER, Origin, body_digest};

impl Manifest {
    /// Reads a canonical encoding.
    ///
    /// # Errors
    /// [`ManifestError`] if the version is another, the bytes are altered, do not decode or are not canonical, or
    /// modules are not sorted.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let of_version = |magic| bytes.strip_prefix(magic).and_then(<[u8]>::split_first_chunk::<32>);
        let Some((expected, body)) = of_version(&MAGIC).or_else(|| of_version(&OLDER)) else {
            return Err(ManifestError::Magic { found: bytes[..bytes.len().min(8)].to_vec() });
        };
        let (expected, found) = (Digest(*expected), body_digest(body));
        if expected != found {
            let others = body.windows(MAGIC.len()).filter(|bytes| *bytes == MAGIC).count();
            if others > 0 {
                return Err(ManifestError::Several(1 + others));
            }
            return Err(ManifestError::Digest { expected, found });
        }
        let (origin, rest) = match bytes.starts_with(&MAGIC) {
            true => parse::<Origin>(body).map(|(origin, bytes)| (Some(origin), &body[bytes..]))?,
            false => (None, body),
        };
        let manifest = Self { origin, ..parse::<Self>(rest)?.0 };
        if manifest.body() != body {
            return Err(ManifestError::NotCanonical);
        }
        if let Some(pair) = manifest.built_for.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(ManifestError::Order(pair[1].clone()));
        }
        if let Some(pair) = manifest.modules.windows(2).find(|pair| pair[0].order() >= pair[1].order()) {
            return Err(ManifestError::Order(pair[1].to_string()));
        }
        for module in &manifest.modules {
            let arch = module.arch()?;
            if module.code.is_some() != (arch != Arch::Sim) {
                return Err(ManifestError::Code(module.to_string()));
            }
        }
        Ok(manifest)
    }
}

/// Decodes the beginning of a body. Returns its length, bytes, too.
fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<(T, usize), ManifestError> {
    let config = bincode::config::standard().with_fixed_int_encoding();
    let decoded = bincode::serde::borrow_decode_from_slice(body, config);
    decoded.map_err(|error| ManifestError::Decode(error.to_string()))
}
