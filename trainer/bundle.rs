//! The kernels a run uses: embedded, from a file, or the simulated GPU's own.

use std::path::Path;

use precast_fatbins::{Bundle, Manifest};
use precast_kernels::Arch;
use precast_plan::{Plan, keys};

use crate::error::Failure;

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
/// [`Failure::Embedded`] where it is not the one the binary was built with.
pub fn embedded() -> Result<Option<Bundle<'static>>, Failure> {
    let Some(Embedded { manifest, fatbin, digest }) = EMBEDDED else { return Ok(None) };
    let bundle = Bundle::from_parts(manifest, fatbin).map_err(Failure::Embedded)?;
    if bundle.digest().to_string() == digest {
        return Ok(Some(bundle));
    }
    Err(Failure::Embedded(precast_fatbins::BundleError::Claim {
        module: "manifest".to_owned(),
        what: "digest",
        expected: digest.to_owned(),
        found: bundle.digest().to_string(),
    }))
}

/// Where the bytes of a run's bundle come from.
pub enum BundleSource {
    /// This binary.
    Embedded(Bundle<'static>),
    /// A file, read whole.
    File(std::path::PathBuf, Vec<u8>),
    /// The simulated GPU has a host reference for every key, so its bundle is made for the plan.
    Simulated(Vec<u8>),
}

impl BundleSource {
    /// The file if one is given; else for the simulated GPU its own; else the embedded one.
    ///
    /// # Errors
    /// [`Failure`] where the file cannot be read or nothing is embedded.
    pub fn find(file: Option<&Path>, arch: Arch, plan: &Plan) -> Result<Self, Failure> {
        if let Some(path) = file {
            let bytes = std::fs::read(path).map_err(Failure::io("read", path))?;
            return Ok(Self::File(path.to_owned(), bytes));
        }
        if arch == Arch::Sim {
            return Ok(Self::Simulated(Manifest::simulated(&keys(plan)).encode()));
        }
        match embedded()? {
            Some(bundle) => Ok(Self::Embedded(bundle)),
            // An empty bundle: the start-up check says which feature to build with.
            None => Ok(Self::Simulated(Manifest::simulated([]).encode())),
        }
    }

    /// The bundle, its structure checked.
    ///
    /// # Errors
    /// [`Failure::Bundle`] where the file must not be used.
    pub fn open(&self) -> Result<Bundle<'_>, Failure> {
        match self {
            Self::Embedded(bundle) => Ok(bundle.clone()),
            Self::File(path, bytes) => {
                Bundle::read(bytes).map_err(|error| Failure::Bundle { path: path.clone(), error })
            }
            Self::Simulated(manifest) => Bundle::from_parts(manifest, &[]).map_err(Failure::Embedded),
        }
    }
}
