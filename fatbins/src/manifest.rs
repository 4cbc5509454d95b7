//! The manifest: what a bundle holds, and what each cubin must say of itself.

use precast_kernels::{Arch, Key, KeyError, KeyVariant};
use serde::Serialize;

use crate::Digest;
use crate::cubin::{CubinError, CubinFacts};

/// Marks a manifest, and its version.
pub(crate) const MAGIC: [u8; 8] = *b"PRECAST\x01";

/// What a bundle holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// The compiler and its version: `NVRTC 13.0.88`.
    pub compiler: String,
    /// Options every kernel was compiled with, besides its architecture and macros.
    pub options: Vec<String>,
    /// The models whose kernels these are, sorted.
    pub models: Vec<String>,
    /// Modules, sorted by key, variant and architecture.
    pub modules: Vec<ModuleEntry>,
}

/// One key built as one variant for one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModuleEntry {
    /// Canonical key text.
    pub key: String,
    /// Canonical variant text.
    pub variant: String,
    pub arch: String,
    /// Size of the parameter block, bytes.
    pub params_bytes: u32,
    /// Digest of everything the cubin is a function of, the compiler apart: `KeyVariant::source_digest`.
    pub source: Digest,
    /// The machine code; none for the simulated GPU.
    pub code: Option<Code>,
}

/// What the manifest claims of a cubin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    /// Symbol of the kernel in its cubin: key, variant and a digest of its sources.
    pub entry: String,
    /// SHA-256 of the cubin.
    pub digest: Digest,
    /// Size of the cubin.
    pub bytes: u64,
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block, bytes.
    pub static_shared_bytes: u32,
    /// Stack frame of a thread, bytes.
    pub stack_bytes: u32,
    /// Largest block, threads.
    pub max_threads: u32,
}

/// A manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not a manifest of this version.
    #[error("no manifest of version {}: it starts with {found:02x?}, expected {MAGIC:02x?}", MAGIC[7])]
    Magic {
        /// The first bytes of what was read.
        found: Vec<u8>,
    },
    /// The bytes are not those that were written.
    #[error("manifest has SHA-256 {found}, its own header says {expected}: it was altered or cut short")]
    Digest {
        /// By the header.
        expected: Digest,
        /// Of the bytes.
        found: Digest,
    },
    /// The bytes do not decode.
    #[error("manifest does not decode: {0}")]
    Decode(String),
    /// Decoding and re-encoding gives other bytes.
    #[error("manifest is not canonical: decoding and re-encoding it gives other bytes")]
    NotCanonical,
    /// Models or modules out of order or twice.
    #[error("models or modules are not sorted, or one occurs twice: `{0}`")]
    Order(String),
    /// Machine code for the simulated GPU, or none for another.
    #[error("`{0}`: every architecture but sim has machine code, and sim has none")]
    Code(String),
    /// A key that this program does not know.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A variant or architecture this program does not know.
    #[error("unknown {what} `{text}` of module `{key}`: this program and the bundle come from different versions")]
    Unknown {
        /// variant or architecture.
        what: &'static str,
        text: String,
        /// The module's key.
        key: String,
    },
}

impl Manifest {
    /// The manifest of a bundle for the simulated GPU alone, which has a host reference for every key.
    pub fn simulated<'k>(pairs: impl IntoIterator<Item = &'k KeyVariant>) -> Self {
        let mut modules: Vec<ModuleEntry> = pairs.into_iter().map(ModuleEntry::simulated).collect();
        modules.sort_by(|a, b| a.order().cmp(&b.order()));
        Self { compiler: "none".to_owned(), options: Vec::new(), models: Vec::new(), modules }
    }

    /// The canonical encoding: magic, the digest of the rest, and the rest: bincode with fixed-width
    /// little-endian integers.
    pub fn encode(&self) -> Vec<u8> {
        let body = self.body();
        [&MAGIC[..], &body_digest(&body).0, &body].concat()
    }

    /// Encodes all but the header.
    pub(crate) fn body(&self) -> Vec<u8> {
        let config = bincode::config::standard().with_fixed_int_encoding();
        bincode::serde::encode_to_vec(self, config).expect("a vector takes any number of bytes")
    }

    /// Digest of everything the bundle holds: that in the header of the encoding.
    pub fn digest(&self) -> Digest {
        body_digest(&self.body())
    }
}

pub(crate) fn body_digest(body: &[u8]) -> Digest {
    Digest::of_parts("precast.manifest", [body])
}

impl ModuleEntry {
    /// The simulated GPU's row of a key: no machine code.
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

    /// The row of a cubin, read back from the cubin itself.
    ///
    /// # Errors
    /// [`CubinError`] where it is none that this project makes.
    pub fn compiled(pair: &KeyVariant, arch: Arch, cubin: &[u8]) -> Result<Self, CubinError> {
        let facts = CubinFacts::read(cubin)?;
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

    /// What modules are sorted by.
    pub fn order(&self) -> (&str, &str, &str) {
        (&self.key, &self.variant, &self.arch)
    }

    /// The architecture, by its own name and no other spelling.
    ///
    /// # Errors
    /// [`ManifestError::Unknown`].
    pub fn arch(&self) -> Result<Arch, ManifestError> {
        let arch = Arch::of_name(&self.arch);
        arch.ok_or_else(|| self.unknown("architecture", &self.arch))
    }

    fn unknown(&self, what: &'static str, text: &str) -> ManifestError {
        ManifestError::Unknown { what, text: text.to_owned(), key: self.key.clone() }
    }

    /// The typed key, variant and architecture.
    ///
    /// # Errors
    /// [`ManifestError`] where this program knows one of them not.
    pub fn typed(&self) -> Result<(KeyVariant, Arch), ManifestError> {
        let key = Key::parse(&self.key)?;
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
