//! The kernels a run uses: embedded, from a file, or the simulated GPU's own.

use precast_fatbins::{Bundle, BundleError, BundleFile, Embedded, EmbeddedError, Manifest, TrustedKey};
use precast_kernels::{Arch, KERNELS};
use precast_plan::{Plan, keys};
use precast_runtime::LoadError;

use crate::base::impostors::Disguise;
use crate::device::error::DeviceError;
use crate::device::remedy;
use crate::options::Kernels;

/// Kernels inside this binary.
#[cfg(feature = "_kernels")]
static EMBEDDED: Embedded = precast_fatbins::embedded!();
#[cfg(not(feature = "_kernels"))]
static EMBEDDED: Embedded = Embedded::Nothing;

/// Returns the bundle inside this binary, if it was built with any architecture: in a binary that has all, that of the
/// one asked for, else of the first.
///
/// # Errors
/// [`DeviceError::Bundle`] if it is not the one that the binary was built with.
pub fn embedded(arch: Option<Arch>) -> Result<Option<Bundle<'static>>, DeviceError> {
    EMBEDDED.open(arch, &KERNELS).map_err(|error| DeviceError::Bundle(error.to_string()))
}

/// Returns the architectures whose bundles are in frames; none where one bundle is embedded for all.
pub fn framed() -> Vec<Arch> {
    EMBEDDED.framed()
}

fn unusable(error: BundleError) -> DeviceError {
    DeviceError::Bundle(EmbeddedError::from(error).to_string())
}

/// Returns the digest of the embedded kernels, for a bug report.
pub fn facts() -> String {
    format!("bundle: {}", EMBEDDED.digests())
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
    /// [`DeviceError`] where the file cannot be read or the embedded one must not be used, and where a trusted key is
    /// none.
    pub fn find(&self, arch: Arch, plan: &Plan) -> Result<BundleSource, DeviceError> {
        self.keys()?;
        if arch == Arch::Sim && self.bundle.is_none() {
            return Ok(BundleSource::Simulated(Manifest::simulated(&KERNELS, &keys(plan)).encode()));
        }
        // An empty bundle: the start-up check says how to build kernels.
        let empty = || BundleSource::Simulated(Manifest::simulated(&KERNELS, []).encode());
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

    /// Says why a run over models must not start; names the file, if the fault is in one.
    pub fn not_loaded(&self, error: LoadError, models: &[String]) -> DeviceError {
        let error = remedy::of_run(error, models);
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
