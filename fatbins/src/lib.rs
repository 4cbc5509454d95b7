//! THE ARTIFACT: cubins and a manifest in one file.
//!
//! A bundle is an ELF object. Section `.nv_fatbin` holds standard NVIDIA fatbin containers, one per (key, variant), so
//! that `cuobjdump` and Nsight open it; section `.precast` holds the manifest. The encoding is canonical: a bundle
//! equals its own re-encoding byte for byte. `README.md` beside this crate is the specification.

#![deny(missing_docs)]

mod bounded;
mod bundle;
mod code;
mod cubin;
mod embedded;
pub mod evidence;
mod fatbin;
mod foreign;
mod frame;
pub mod lock;
mod manifest;
mod secret_key;
mod sign;
mod stale;
mod trust;
mod wire;

pub use bundle::{Bundle, BundleError, BundleFile, Module, encode, parts};
pub use code::CubinCode;
pub use cubin::{CubinError, CubinFacts};
pub use embedded::{Embedded, EmbeddedError};
pub use foreign::Foreign;
pub use frame::{Frame, FrameError, compress};
pub use lock::{Change, Lock, LockError};
pub use manifest::{Code, Manifest, ManifestError, ModuleEntry, Origin};
pub use precast_core::{Arch, Digest, Hasher, NotADigest};
pub use secret_key::{SecretKeyError, open_secret_key};
pub use sign::{sign, sign_with};
pub use stale::{Stale, StaleModule};
pub use trust::{SignatureError, TrustedKey, signature_path};

/// Section of the fatbin containers.
pub const FATBIN_SECTION: &str = ".nv_fatbin";
/// Section of the manifest.
pub const MANIFEST_SECTION: &str = ".precast";
