//! Keys: typed values naming what a kernel computes, with a canonical text that parses back.
//!
//! The text is `op{field=value,...}` with the fields in alphabetical order: `rmsnorm.fwd{h=896,residual=false,x=bf16}`. A field that
//! says what only some keys do is left out of the others, always: `rmsnorm.fwd{h=896,out=bf16+i8,residual=false,x=bf16}`. Two keys
//! are equal exactly when their texts are.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::arch::Arch;
use crate::digest::Digest;
use crate::erased::{AnyKernel, Erased, Registered};
use crate::fields::{self, Field};
use crate::source::{OPTIONS, Source};
use crate::variant::Variant;

/// A key of any operation. Compares, orders and hashes by its canonical text.
#[derive(Clone)]
pub struct Key {
    text: Arc<str>,
    op: &'static str,
    params_bytes: usize,
    fields: Arc<[Field]>,
    kernel: Arc<dyn AnyKernel>,
}

impl Key {
    /// Erases a typed key.
    pub fn new<K: Registered>(kernel: K) -> Self {
        Self {
            text: fields::text(&kernel).into(),
            op: K::OP,
            params_bytes: kernel.params_bytes(),
            fields: kernel.fields().into(),
            kernel: Arc::new(Erased(kernel)),
        }
    }

    /// The canonical text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Operation name: `family.operation`.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// Size of the parameter block.
    pub fn params_bytes(&self) -> usize {
        self.params_bytes
    }

    /// What the key computes.
    pub fn kernel(&self) -> &dyn AnyKernel {
        &*self.kernel
    }

    /// The key built as each of an architecture's variants.
    pub fn built(&self, arch: Arch) -> impl Iterator<Item = KeyVariant> {
        self.kernel.variants(arch).into_iter().map(|variant| KeyVariant { key: self.clone(), variant })
    }
}

/// What one module holds: a key built as a variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyVariant {
    /// What is computed.
    pub key: Key,
    /// How it is built.
    pub variant: Variant,
}

/// Hex digits of the source digest at the end of an entry symbol.
const ENTRY_DIGITS: usize = 16;

impl KeyVariant {
    /// The CUDA source.
    pub fn source(&self) -> Source {
        self.key.kernel.source(self.variant)
    }

    /// What key and variant define: `KEY_<FIELD>` and `VARIANT_<NAME>`.
    fn baked(&self) -> impl Iterator<Item = (String, String)> {
        let fields = self.key.fields.iter();
        let key = fields.map(|field| (format!("KEY_{}", field.name.to_uppercase()), field.define.clone()));
        let numbers = self.variant.numbers();
        key.chain(numbers.map(|(name, value)| (format!("VARIANT_{}", name.to_uppercase()), value.to_string())))
    }

    /// Macro definitions: `KEY_<FIELD>`, `VARIANT_<NAME>` and `ENTRY`.
    pub fn defines(&self, arch: Arch) -> Vec<(String, String)> {
        self.baked().chain([("ENTRY".to_owned(), self.entry(arch))]).collect()
    }

    /// Digest of everything the machine code is a function of, the compiler apart: source, headers, options, architecture
    /// and macros. `ENTRY` is not among them: it is made from this. The simulated GPU runs the host reference of a key,
    /// whatever the source: its digest is of key and variant alone.
    pub fn source_digest(&self, arch: Arch) -> Digest {
        if arch == Arch::Sim {
            let variant = self.variant.to_string();
            return Digest::of_parts("precast.simulated", [self.key.text.as_bytes(), variant.as_bytes()]);
        }
        let text = self.source().digest();
        let options = OPTIONS.join(" ");
        let defines: Vec<String> = self.baked().map(|(name, value)| format!("{name}={value}")).collect();
        let parts = [&text.0[..], options.as_bytes(), arch.name().as_bytes()];
        Digest::of_parts("precast.source", parts.into_iter().chain(defines.iter().map(String::as_bytes)))
    }

    /// Entry symbol: key and variant, then the first 16 digits of the source digest, so that a cubin says itself what it
    /// was made from.
    pub fn entry(&self, arch: Arch) -> String {
        let mut symbol = self.key.op.replace('.', "_");
        for field in &*self.key.fields {
            // A symbol has no other signs.
            symbol.push_str(&format!("__{}_{}", field.name, field.value.replace('+', "_")));
        }
        for (name, value) in self.variant.numbers() {
            symbol.push_str(&format!("__{name}_{value}"));
        }
        symbol + "__" + &self.source_digest(arch).to_string()[..ENTRY_DIGITS]
    }
}

impl fmt::Display for KeyVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.key, self.variant)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}
