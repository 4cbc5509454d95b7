//! The kernels a run uses: embedded, from a file, or the simulated GPU's own.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use precast_fatbins::{Bundle, BundleError, BundleFile, Frame, Manifest, TrustedKey};
use precast_kernels::{Arch, KERNELS};
use precast_plan::{Plan, keys};
use precast_runtime::LoadError;

use crate::base::impostors::Disguise;
use crate::device::error::DeviceError;
use crate::options::{Kernels, UsageError};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Kernels inside this binary. A build has one of these.
#[allow(dead_code)]
enum Embedded {
    Nothing,
    /// The two sections of a bundle, and its manifest's digest.
    Sections {
        manifest: &'static [u8],
        fatbin: &'static [u8],
        digest: &'static str,
    },
    /// A bundle of each architecture, in a frame.
    Frames(&'static [Frame]),
}

/// Returns the bundle inside this binary, if it was built with any architecture: in a binary that has all, that of the
/// one asked for, else of the first.
///
/// # Errors
/// [`DeviceError::Bundle`] if it is not the one that the binary was built with.
pub fn embedded(arch: Option<Arch>) -> Result<Option<Bundle<'static>>, DeviceError> {
    let (bundle, digest) = match EMBEDDED {
        Embedded::Nothing => return Ok(None),
        Embedded::Sections { manifest, fatbin, digest } => {
            (Bundle::from_parts(manifest, fatbin, &KERNELS).map_err(unusable)?, digest.to_owned())
        }
        Embedded::Frames(frames) => {
            let named = frames.iter().find(|frame| Some(frame.arch) == arch);
            return named.or(frames.first()).map(unpacked).transpose();
        }
    };
    with_digest(bundle, &digest).map(Some)
}

/// Decompresses a frame once a process.
fn unpacked(frame: &Frame) -> Result<Bundle<'static>, DeviceError> {
    static FILES: Mutex<BTreeMap<Arch, &'static [u8]>> = Mutex::new(BTreeMap::new());
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let file = match files.get(&frame.arch) {
        Some(file) => file,
        None => {
            let file = frame.decompress().map_err(|error| DeviceError::Bundle(error.to_string()))?;
            // A program has a frame an architecture, and reads it while it lives.
            *files.entry(frame.arch).or_insert(file.leak())
        }
    };
    with_digest(Bundle::read(file, &KERNELS).map_err(unusable)?, &frame.bundle.to_string())
}

fn with_digest(bundle: Bundle<'static>, digest: &str) -> Result<Bundle<'static>, DeviceError> {
    if bundle.digest().to_string() == digest {
        return Ok(bundle);
    }
    Err(unusable(BundleError::Claim {
        module: "manifest".to_owned(),
        what: "digest",
        expected: digest.to_owned(),
        found: bundle.digest().to_string(),
    }))
}

/// Returns the architectures whose bundles are in frames; none where one bundle is embedded for all.
pub fn framed() -> Vec<Arch> {
    match EMBEDDED {
        Embedded::Frames(frames) => frames.iter().map(|frame| frame.arch).collect(),
        Embedded::Nothing | Embedded::Sections { .. } => Vec::new(),
    }
}

fn unusable(error: BundleError) -> DeviceError {
    DeviceError::Bundle(format!("the embedded bundle must not be used: {error}"))
}

/// Returns the digest of the embedded kernels, for a bug report.
pub fn facts() -> String {
    let digests = match EMBEDDED {
        Embedded::Nothing => "none embedded".to_owned(),
        Embedded::Sections { digest, .. } => digest.to_owned(),
        Embedded::Frames(frames) => {
            frames.iter().map(|frame| format!("{} {}", frame.arch, frame.bundle)).collect::<Vec<_>>().join(", ")
        }
    };
    format!("bundle: {digests}")
}

/// Source of the bytes of a run's bundle.
pub enum BundleSource {
    /// Embedded in this binary.
    Embedded(Bundle<'static>),
    /// A file, read whole.
    File(BundleFile, Vec<TrustedKey>),
    /// The simulated GPU has a host reference for every key, so its bundle is made for the plan.
    Simulated(Vec<u8>),
}

impl Kernels {
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

    /// The bundle file, if one is named, else what is embedded for an architecture; none where neither is there.
    ///
    /// # Errors
    /// [`DeviceError`] where it cannot be read.
    pub fn source(&self, arch: Option<Arch>) -> Result<Option<BundleSource>, DeviceError> {
        let Some(path) = &self.bundle else { return Ok(embedded(arch)?.map(BundleSource::Embedded)) };
        let unreadable = |reason: String| {
            let path = path.display();
            DeviceError::Bundle(format!(
                "--bundle {path} {reason}\nprecast-aot build --model DIR --arch ARCH --out FILE makes a bundle"
            ))
        };
        let file = BundleFile::read(path).map_err(|error| unreadable(format!("cannot be read: {error}")))?;
        match Disguise::of(&file.bytes) {
            Some(what) => Err(unreadable(what.to_string())),
            None => Ok(Some(BundleSource::File(file, self.keys()?))),
        }
    }

    /// GPUs that the bundle file, or the embedded bundle, has code for.
    ///
    /// # Errors
    /// [`DeviceError`] where the file cannot be read or either must not be used.
    pub fn archs(&self) -> Result<Vec<Arch>, DeviceError> {
        let framed = framed();
        if self.bundle.is_none() && !framed.is_empty() {
            return Ok(framed);
        }
        let archs = self.source(None)?.map(|source| Ok::<_, DeviceError>(source.open()?.archs())).transpose()?;
        Ok(archs.into_iter().flatten().filter(|arch| *arch != Arch::Sim).collect())
    }

    /// The file if one is named; else for the simulated GPU its own; else the embedded one.
    ///
    /// # Errors
    /// [`DeviceError`] where the file cannot be read or the embedded one must not be used.
    pub fn find(&self, arch: Arch, plan: &Plan) -> Result<BundleSource, DeviceError> {
        if arch == Arch::Sim && self.bundle.is_none() {
            return Ok(BundleSource::Simulated(Manifest::simulated(&keys(plan)).encode()));
        }
        // An empty bundle: the start-up check says how to build kernels.
        let empty = || BundleSource::Simulated(Manifest::simulated([]).encode());
        Ok(self.source(Some(arch))?.unwrap_or_else(empty))
    }
}

impl BundleSource {
    /// The bundle: its signature checked where keys are trusted, then its structure.
    ///
    /// # Errors
    /// [`DeviceError::Bundle`] where the file must not be used.
    pub fn open(&self) -> Result<Bundle<'_>, DeviceError> {
        match self {
            Self::Embedded(bundle) => Ok(bundle.clone()),
            Self::File(file, keys) => file.open(keys, &KERNELS).map_err(|error| self.refuse(error)),
            Self::Simulated(manifest) => {
                Bundle::from_parts(manifest, &[], &KERNELS).map_err(|error| self.refuse(error))
            }
        }
    }

    /// Why this bundle must not be used: the file is named, if it is one.
    pub fn refuse(&self, error: BundleError) -> DeviceError {
        match self {
            Self::File(file, _) => DeviceError::Bundle(format!("{}: {error}", file.path.display())),
            Self::Embedded(_) | Self::Simulated(_) => unusable(error),
        }
    }

    /// Why a run must not start: the file is named where what is wrong is in one.
    pub fn not_loaded(&self, error: LoadError) -> DeviceError {
        match (error, self) {
            (LoadError::Bundle(error), _) => self.refuse(error),
            (error @ (LoadError::NoArch { .. } | LoadError::Missing(_)), Self::File(file, _)) => {
                DeviceError::NotInBundle { path: file.path.clone(), error: error.into() }
            }
            (LoadError::NoArch { device, arch, remedy, .. }, Self::Embedded(_)) if !framed().is_empty() => {
                DeviceError::Load(LoadError::NoArch { device, arch, holds: framed(), remedy })
            }
            (other, _) => DeviceError::Load(other),
        }
    }

    /// Returns a note on a bundle that is not signed by a trusted key.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::File(file, keys) if keys.is_empty() => Some(format!(
                "{}: no trusted key is configured, so whoever wrote this file is trusted \
                 (--trusted-key KEY refuses what KEY did not sign)",
                file.path.display()
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use precast_fatbins::{Digest, compress, encode};

    use super::*;

    fn frame(arch: Arch) -> Frame {
        let manifest = Manifest::simulated([]);
        let file = encode(&manifest, |_| &[]);
        let (bytes, bundle_bytes): (&[u8], _) = (compress(&file).leak(), file.len() as u64);
        Frame { arch, bytes, sha256: Digest::of(bytes), bundle_bytes, bundle: manifest.digest() }
    }

    #[test]
    fn a_frame_gives_its_bundle_once_it_is_the_one_that_was_built() {
        let whole = frame(Arch::Sm80);
        for _ in 0..2 {
            assert_eq!(unpacked(&whole).unwrap().digest(), whole.bundle);
        }
        let message = |frame: Frame| {
            let failure = unpacked(&frame).unwrap_err();
            assert!(matches!(failure, DeviceError::Bundle(_)), "{failure}");
            failure.to_string()
        };
        let mut bytes = whole.bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        let flipped = message(Frame { bytes: bytes.leak(), ..frame(Arch::Sm86) });
        assert!(flipped.starts_with("the frame of sm_86 has SHA-256"), "{flipped}");
        let other = message(Frame { bundle: Digest::of(b"another"), ..frame(Arch::Sm89) });
        assert!(other.contains("manifest") && other.contains("digest"), "{other}");
        let text: &[u8] = b"no bundle";
        let bytes: &[u8] = compress(text).leak();
        let (sha256, bundle_bytes) = (Digest::of(bytes), text.len() as u64);
        let no_bundle = message(Frame { bytes, sha256, bundle_bytes, ..frame(Arch::Sm120) });
        assert!(no_bundle.contains("the embedded bundle must not be used"), "{no_bundle}");
    }
}
