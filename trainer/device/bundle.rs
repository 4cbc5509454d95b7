//! The kernels a run uses: embedded, from a file, or the simulated GPU's own.

use precast_fatbins::{Bundle, BundleError, BundleFile, Manifest, TrustedKey};
use precast_kernels::Arch;
use precast_plan::{Plan, keys};
use precast_runtime::LoadError;

use crate::base::impostors::Disguise;
use crate::device::error::DeviceError;
use crate::options::{Kernels, UsageError};

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The two sections of an embedded bundle, and its manifest's digest.
struct Embedded {
    manifest: &'static [u8],
    fatbin: &'static [u8],
    digest: &'static str,
}

/// The bundle inside this binary, if it was built with any architecture.
///
/// # Errors
/// [`DeviceError::Bundle`] where it is not the one the binary was built with.
pub fn embedded() -> Result<Option<Bundle<'static>>, DeviceError> {
    let Some(Embedded { manifest, fatbin, digest }) = EMBEDDED else { return Ok(None) };
    let bundle = Bundle::from_parts(manifest, fatbin).map_err(unusable)?;
    if bundle.digest().to_string() == digest {
        return Ok(Some(bundle));
    }
    Err(unusable(BundleError::Claim {
        module: "manifest".to_owned(),
        what: "digest",
        expected: digest.to_owned(),
        found: bundle.digest().to_string(),
    }))
}

fn unusable(error: BundleError) -> DeviceError {
    DeviceError::Bundle(format!("the embedded bundle must not be used: {error}"))
}

/// Returns the digest of the embedded kernels, for a bug report.
pub fn facts() -> String {
    format!("bundle: {}", EMBEDDED.as_ref().map_or("none embedded", |embedded| embedded.digest))
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

    /// The bundle file, if one is named, else what is embedded; none where neither is there.
    ///
    /// # Errors
    /// [`DeviceError`] where it cannot be read.
    pub fn source(&self) -> Result<Option<BundleSource>, DeviceError> {
        let Some(path) = &self.bundle else { return Ok(embedded()?.map(BundleSource::Embedded)) };
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
        let archs = self.source()?.map(|source| Ok::<_, DeviceError>(source.open()?.archs())).transpose()?;
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
        Ok(self.source()?.unwrap_or_else(empty))
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
            Self::File(file, keys) => file.open(keys).map_err(|error| self.refuse(error)),
            Self::Simulated(manifest) => Bundle::from_parts(manifest, &[]).map_err(|error| self.refuse(error)),
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
