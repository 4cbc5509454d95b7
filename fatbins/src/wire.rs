//! Decodes an untrusted manifest: text is borrowed from the input and lists grow item by item, so that no length in a
//! hostile file makes a reader allocate more than the file holds.

use std::fmt;
use std::marker::PhantomData;

use precast_core::Arch;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Digest;
use crate::manifest::{Code, MAGIC, Manifest, ManifestError, ModuleEntry, OLDER, Origin, body_digest};

/// [`Origin`] with fields borrowed from the file.
#[derive(Deserialize)]
struct WireOrigin<'a> {
    program: &'a str,
    core: &'a str,
}

/// [`Manifest`] with fields borrowed from the file, after its origin.
#[derive(Deserialize)]
struct WireManifest<'a> {
    compiler: &'a str,
    #[serde(borrow, deserialize_with = "list")]
    options: Vec<&'a str>,
    #[serde(borrow, deserialize_with = "list")]
    built_for: Vec<&'a str>,
    #[serde(borrow, deserialize_with = "list")]
    modules: Vec<WireModule<'a>>,
}

#[derive(Deserialize)]
struct WireModule<'a> {
    key: &'a str,
    variant: &'a str,
    arch: &'a str,
    params_bytes: u32,
    source: Digest,
    #[serde(borrow)]
    code: Option<WireCode<'a>>,
}

#[derive(Deserialize)]
struct WireCode<'a> {
    entry: &'a str,
    digest: Digest,
    bytes: u64,
    registers: u32,
    static_shared_bytes: u32,
    stack_bytes: u32,
    max_threads: u32,
}

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
            true => {
                parse::<WireOrigin<'_>>(body).map(|(origin, bytes)| (Some(Origin::from(origin)), &body[bytes..]))?
            }
            false => (None, body),
        };
        let manifest = Self { origin, ..Self::from(parse::<WireManifest<'_>>(rest)?.0) };
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

/// Reads a list without reserving memory for its declared length.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Items<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(item) = items.next_element()? {
                list.push(item);
            }
            Ok(list)
        }
    }
    from.deserialize_seq(Items(PhantomData))
}

impl From<WireOrigin<'_>> for Origin {
    fn from(wire: WireOrigin<'_>) -> Self {
        Self { program: wire.program.to_owned(), core: wire.core.to_owned() }
    }
}

impl From<WireManifest<'_>> for Manifest {
    fn from(wire: WireManifest<'_>) -> Self {
        let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        Self {
            origin: None,
            compiler: wire.compiler.to_owned(),
            options: owned(wire.options),
            built_for: owned(wire.built_for),
            modules: wire.modules.into_iter().map(ModuleEntry::from).collect(),
        }
    }
}

impl From<WireModule<'_>> for ModuleEntry {
    fn from(wire: WireModule<'_>) -> Self {
        Self {
            key: wire.key.to_owned(),
            variant: wire.variant.to_owned(),
            arch: wire.arch.to_owned(),
            params_bytes: wire.params_bytes,
            source: wire.source,
            code: wire.code.map(Code::from),
        }
    }
}

impl From<WireCode<'_>> for Code {
    fn from(wire: WireCode<'_>) -> Self {
        Self {
            entry: wire.entry.to_owned(),
            digest: wire.digest,
            bytes: wire.bytes,
            registers: wire.registers,
            static_shared_bytes: wire.static_shared_bytes,
            stack_bytes: wire.stack_bytes,
            max_threads: wire.max_threads,
        }
    }
}
