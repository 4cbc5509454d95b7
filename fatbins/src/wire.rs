//! Decoding a manifest without believing it: text is borrowed from the bytes that are there and lists grow item by item,
//! so that no length in a hostile file makes a reader allocate more than the file holds.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Digest;
use crate::manifest::{Code, Manifest, ManifestError, ModuleEntry};

/// A manifest as it lies in the file: the fields of [`Manifest`], borrowed.
#[derive(Deserialize)]
pub struct WireManifest<'a> {
    compiler: &'a str,
    #[serde(borrow, deserialize_with = "list")]
    options: Vec<&'a str>,
    #[serde(borrow, deserialize_with = "list")]
    models: Vec<&'a str>,
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

/// Decodes the body of a manifest.
pub fn decode(body: &[u8]) -> Result<WireManifest<'_>, ManifestError> {
    let config = bincode::config::standard().with_fixed_int_encoding();
    let decoded = bincode::serde::borrow_decode_from_slice(body, config);
    decoded.map(|(manifest, _)| manifest).map_err(|error| ManifestError::Decode(error.to_string()))
}

/// A list for whose length no memory is reserved.
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

impl From<WireManifest<'_>> for Manifest {
    fn from(wire: WireManifest<'_>) -> Self {
        let owned = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        Self {
            compiler: wire.compiler.to_owned(),
            options: owned(wire.options),
            models: owned(wire.models),
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
