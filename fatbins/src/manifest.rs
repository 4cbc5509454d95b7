//! The manifest: a bundle's modules, and the claims about each cubin.

use precast_core::{Arch, Kernels, KeyError, KeyVariant};
use serde::{Deserialize, Serialize};

use crate::cubin::{CubinError, CubinFacts};
use crate::{Digest, bounded};

/// Magic bytes of a manifest, with its version.
pub(crate) const MAGIC: [u8; 8] = *b"PRECAST\x02";

/// Those of a manifest that names no program: it is shown, never used.
pub(crate) const OLDER: [u8; 8] = *b"PRECAST\x01";

/// Program that a bundle is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Name of the program: `Registry::program`.
    #[serde(deserialize_with = "bounded::text")]
    pub program: String,
    /// Version of `precast-core` that it is built with.
    #[serde(deserialize_with = "bounded::text")]
    pub core: String,
}

impl Origin {
    /// Returns the origin of bundles of these kernels, as this build of the core writes and takes them.
    pub fn of(kernels: &Kernels) -> Self {
        Self { program: kernels.program.to_owned(), core: precast_core::VERSION.to_owned() }
    }
}

/// Modules of a bundle and their compiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Program that the modules are for; none in a bundle of format 1.
    #[serde(skip)]
    pub origin: Option<Origin>,
    /// The compiler and its version: `NVRTC 13.0.88`.
    #[serde(deserialize_with = "bounded::text")]
    pub compiler: String,
    /// Options common to all kernels, besides architecture and macros.
    #[serde(deserialize_with = "bounded::texts")]
    pub options: Vec<String>,
    /// Names of what the kernels are built for, sorted, as the program gives them.
    #[serde(deserialize_with = "bounded::texts")]
    pub built_for: Vec<String>,
    /// Modules, sorted by key, variant and architecture.
    #[serde(deserialize_with = "bounded::list")]
    pub modules: Vec<ModuleEntry>,
}

/// One key built as one variant for one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleEntry {
    /// Canonical key text.
    #[serde(deserialize_with = "bounded::text")]
    pub key: String,
    /// Canonical variant text.
    #[serde(deserialize_with = "bounded::text")]
    pub variant: String,
    /// Name of the architecture.
    #[serde(deserialize_with = "bounded::text")]
    pub arch: String,
    /// Size of the parameter block, bytes.
    pub params_bytes: u32,
    /// Digest of every input of the compilation except the compiler: `KeyVariant::source_digest`.
    pub source: Digest,
    /// Machine code; none for the simulated GPU.
    pub code: Option<Code>,
}

/// The manifest's claims about a cubin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// Entry symbol: key, variant and a digest of the sources.
    #[serde(deserialize_with = "bounded::text")]
    pub entry: String,
    /// SHA-256 of the cubin.
    pub digest: Digest,
    /// Size of the cubin, bytes.
    pub bytes: u64,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per CTA, bytes.
    pub static_shared_bytes: u32,
    /// Stack frame per thread, bytes.
    pub stack_bytes: u32,
    /// Largest CTA, threads.
    pub max_threads: u32,
}

/// A manifest that this program does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// The bytes are no manifest of this version.
    #[error("no manifest of version {}: it starts with {found:02x?}, expected {MAGIC:02x?}", MAGIC[7])]
    Magic {
        /// First bytes of the input.
        found: Vec<u8>,
    },
    /// The bytes were altered.
    #[error("manifest has SHA-256 {found}, its own header says {expected}: it was altered or truncated")]
    Digest {
        /// In the header.
        expected: Digest,
        /// Digest of the bytes.
        found: Digest,
    },
    /// Libraries of a program have one each.
    #[error("{0} manifests: the program has the bundles of several libraries, and only each library reads its own")]
    Several(usize),
    /// The bytes are no manifest.
    #[error("manifest does not decode: {0}")]
    Decode(String),
    /// Re-encoding gives other bytes.
    #[error("manifest is not canonical: decoding and re-encoding it gives other bytes")]
    NotCanonical,
    /// Names or modules are out of order or repeated.
    #[error("names or modules are not sorted, or one occurs twice: `{0}`")]
    Order(String),
    /// The simulated GPU has machine code, or another architecture has none.
    #[error("`{0}`: every architecture but sim has machine code, and sim has none")]
    Code(String),
    /// The key is unknown to this program.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The variant or architecture is unknown to this program.
    #[error("unknown {what} `{text}` of module `{key}`: this program and the bundle come from different versions")]
    Unknown {
        /// `variant` or `architecture`.
        what: &'static str,
        /// Text as it stands.
        text: String,
        /// Key in question.
        key: String,
    },
}

impl Manifest {
    /// Returns the manifest of a bundle for the simulated GPU alone, which has a host reference for every key of these
    /// kernels.
    pub fn simulated<'k>(kernels: &Kernels, pairs: impl IntoIterator<Item = &'k KeyVariant>) -> Self {
        let mut modules: Vec<ModuleEntry> = pairs.into_iter().map(ModuleEntry::simulated).collect();
        modules.sort_by(|a, b| a.order().cmp(&b.order()));
        let origin = Some(Origin::of(kernels));
        Self { origin, compiler: "none".to_owned(), options: Vec::new(), built_for: Vec::new(), modules }
    }

    /// Returns the canonical encoding: magic, the digest of the rest, and the rest.
    pub fn encode(&self) -> Vec<u8> {
        let (body, magic) = (self.body(), if self.origin.is_some() { MAGIC } else { OLDER });
        [&magic[..], &body_digest(&body).0, &body].concat()
    }

    /// Encodes all but the header.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = self.origin.as_ref().map(encoded).unwrap_or_default();
        body.extend(encoded(self));
        body
    }

    /// Returns the digest in the header of the encoding, which covers everything in the bundle.
    pub fn digest(&self) -> Digest {
        body_digest(&self.body())
    }
}

/// Encodes a value: bincode with fixed-width little-endian integers.
fn encoded(value: &impl Serialize) -> Vec<u8> {
    let config = bincode::config::standard().with_fixed_int_encoding();
    bincode::serde::encode_to_vec(value, config).expect("a vector takes any number of bytes")
}

pub(crate) fn body_digest(body: &[u8]) -> Digest {
    Digest::of_parts("precast.manifest", [body])
}

impl ModuleEntry {
    /// Returns the simulated GPU's row of a key: no machine code.
    pub fn simulated(pair: &KeyVariant) -> Self {
        Self {
            params_bytes: pair.key.params_bytes() as u32,
            source: pair.source_digest(Arch::Sim),
            key: pair.key.to_string(),
            variant: pair.variant.to_string(),
            arch: Arch::Sim.to_string(),
            code: None,
        }
    }

    /// Returns the row of a cubin, from the cubin's own facts.
    ///
    /// # Errors
    /// [`CubinError`] if it is no cubin of this project, or its parameters are not as declared.
    pub fn compiled(pair: &KeyVariant, arch: Arch, cubin: &[u8]) -> Result<Self, CubinError> {
        let facts = CubinFacts::of_pair(cubin, pair, &pair.entry(arch))?;
        Ok(Self {
            key: pair.key.to_string(),
            variant: pair.variant.to_string(),
            arch: arch.to_string(),
            params_bytes: facts.params_bytes,
            source: pair.source_digest(arch),
            code: Some(Code {
                entry: facts.entry,
                digest: Digest::of(cubin),
                bytes: cubin.len() as u64,
                registers: facts.registers,
                static_shared_bytes: facts.static_shared_bytes,
                stack_bytes: facts.stack_bytes,
                max_threads: facts.max_threads,
            }),
        })
    }

    /// Returns the sort key of modules.
    pub fn order(&self) -> (&str, &str, &str) {
        (&self.key, &self.variant, &self.arch)
    }

    /// Parses the architecture, in its canonical spelling only.
    ///
    /// # Errors
    /// [`ManifestError::Unknown`] for any other text.
    pub fn arch(&self) -> Result<Arch, ManifestError> {
        let arch = Arch::of_name(&self.arch);
        arch.ok_or_else(|| self.unknown("architecture", &self.arch))
    }

    fn unknown(&self, what: &'static str, text: &str) -> ManifestError {
        ManifestError::Unknown { what, text: text.to_owned(), key: self.key.clone() }
    }

    /// Parses key, variant and architecture.
    ///
    /// # Errors
    /// [`ManifestError`] if these kernels lack one of them.
    pub fn typed(&self, kernels: &Kernels) -> Result<(KeyVariant, Arch), ManifestError> {
        let key = kernels.parse(&self.key)?;
        let arch = self.arch()?;
        let pair = key.built(arch).find(|pair| pair.variant.to_string() == self.variant);
        Ok((pair.ok_or_else(|| self.unknown("variant", &self.variant))?, arch))
    }
}

impl std::fmt::Display for ModuleEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}] {}", self.key, self.variant, self.arch)
    }
}
