//! Keys: typed names of a kernel's computation, with a canonical text that parses back.
//!
//! The text is `op{field=value,...}` with the fields in alphabetical order: `softmax.rows{h=896,scaled=false,x=bf16}`.
//! A field that only some keys have is always omitted from the others:
//! `softmax.rows{h=896,out=bf16+i8,scaled=false,x=bf16}`. Two keys are equal exactly when their texts are.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::arch::Arch;
use crate::digest::Digest;
use crate::erased::{self, AnyKernel, Erased, Registered};
use crate::fields::{self, Field};
use crate::plain::{DIGITS, PLAIN_OPTIONS, Parameter, PlainKernel};
use crate::plain_reference::{self, ReferenceError};
use crate::source::{OPTIONS, Source};
use crate::undeclared::Undeclared;
use crate::variant::Variant;

/// A key of any operation. Compares, orders and hashes by its canonical text.
#[derive(Clone)]
pub struct Key {
    text: Arc<str>,
    op: &'static str,
    params_bytes: usize,
    parameters: &'static [Parameter],
    fields: Arc<[Field]>,
    kernel: Arc<dyn AnyKernel>,
}

impl Key {
    /// Erases a typed key.
    pub fn new<K: Registered>(kernel: K) -> Self {
        Self {
            text: fields::text(&kernel).into(),
            op: K::OP,
            params_bytes: erased::params_bytes(&kernel),
            parameters: K::parameters(),
            fields: kernel.fields().into(),
            kernel: Arc::new(Erased(kernel)),
        }
    }

    /// Returns the key of a kernel as it is: its name, without fields.
    pub fn of_plain(kernel: &'static PlainKernel) -> Self {
        Self {
            text: format!("{}{{}}", kernel.name).into(),
            op: kernel.name,
            params_bytes: kernel.params_bytes(),
            parameters: kernel.parameters,
            fields: Arc::new([]),
            kernel: Arc::new(Undeclared(kernel)),
        }
    }

    /// Returns a launch's parameter block with addresses set to 0: the launch's shape.
    pub fn shape(&self, params: &[u8]) -> Vec<u8> {
        let mut shape = params.to_vec();
        for operand in self.kernel().operands(params) {
            shape[operand.offset..operand.offset + 8].fill(0);
        }
        shape
    }

    /// Returns the canonical text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the operation name: `family.operation`.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// Returns the size of the parameter block, bytes.
    pub fn params_bytes(&self) -> usize {
        self.params_bytes
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &dyn AnyKernel {
        &*self.kernel
    }

    /// Returns the kernel if it is taken as it is.
    pub fn plain(&self) -> Option<&'static PlainKernel> {
        self.kernel.plain()
    }

    /// Compares what a header says of a plain kernel with its file; other keys pass.
    ///
    /// # Errors
    /// [`ReferenceError`] with kernel and parameter.
    pub fn is_as_its_file(&self) -> Result<(), ReferenceError> {
        let Some(plain) = self.plain() else { return Ok(()) };
        let own_name = if self.fields.is_empty() { self.op } else { &*self.text };
        plain_reference::compare(own_name, self.parameters, plain)?;
        // The file is compiled for every architecture, as it is without a reference.
        match Arch::GPUS.into_iter().find(|arch| self.kernel.variants(*arch).is_empty()) {
            Some(arch) => Err(ReferenceError::NoVariant { kernel: plain.name, file: plain.unit.source.path, arch }),
            None => Ok(()),
        }
    }

    /// Returns the key built as each of an architecture's variants.
    pub fn built(&self, arch: Arch) -> impl Iterator<Item = KeyVariant> {
        self.kernel.variants(arch).into_iter().map(|variant| KeyVariant { key: self.clone(), variant })
    }
}

/// Content of one module: a key built as a variant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyVariant {
    /// Kernel that is computed.
    pub key: Key,
    /// Parameters that it is built with.
    pub variant: Variant,
}

impl KeyVariant {
    /// Returns the CUDA source.
    pub fn source(&self) -> Source {
        self.key.kernel.source(self.variant)
    }

    /// Returns the file of a plain kernel, as it follows the name: ` of kernels/blur.cu`; of others nothing.
    pub fn of_file(&self) -> String {
        self.key.plain().map_or_else(String::new, |plain| format!(" of {}", plain.unit.source.path))
    }

    /// Returns the options of the compiler, besides architecture and macros.
    pub fn options(&self) -> Vec<&'static str> {
        let more = self.key.plain().map_or(&[][..], |_| PLAIN_OPTIONS);
        OPTIONS.iter().chain(more).copied().collect()
    }

    /// Returns the macros of key and variant: `KEY_<FIELD>` and `VARIANT_<NAME>`.
    fn baked(&self) -> impl Iterator<Item = (String, String)> {
        let fields = self.key.fields.iter();
        let key = fields.map(|field| (format!("KEY_{}", field.name.to_uppercase()), field.define.clone()));
        let numbers = self.variant.numbers();
        key.chain(numbers.map(|(name, value)| (format!("VARIANT_{}", name.to_uppercase()), value.to_string())))
    }

    /// Returns the macro definitions: `KEY_<FIELD>`, `VARIANT_<NAME>` and `ENTRY`; of a file that is taken as it is the
    /// names of its entries.
    pub fn defines(&self, arch: Arch) -> Vec<(String, String)> {
        let Some(plain) = self.key.plain() else {
            return self.baked().chain([("ENTRY".to_owned(), self.entry(arch))]).collect();
        };
        let digest = self.source_digest(arch);
        plain.unit.entries.iter().map(|name| ((*name).to_owned(), symbol(name, &digest))).collect()
    }

    /// Returns the digest of every input of the machine code except the compiler: source, headers, options,
    /// architecture and macros. `ENTRY` is left out: it contains this digest. The simulated GPU runs the host reference
    /// of a key with any source: its digest is of key and variant alone.
    pub fn source_digest(&self, arch: Arch) -> Digest {
        if arch == Arch::Sim {
            let variant = self.variant.to_string();
            return Digest::of_parts("precast.simulated", [self.key.text.as_bytes(), variant.as_bytes()]);
        }
        let text = self.source().digest();
        let options = self.options().join(" ");
        // A plain file gets no macros of key and variant: its kernels, in all their variants, have one digest.
        let defines: Vec<String> = match self.key.plain().map(|plain| plain.unit) {
            Some(unit) => unit.entries.iter().chain(unit.instances).map(|name| (*name).to_owned()).collect(),
            None => self.baked().map(|(name, value)| format!("{name}={value}")).collect(),
        };
        let parts = [&text.0[..], options.as_bytes(), arch.name().as_bytes()];
        Digest::of_parts("precast.source", parts.into_iter().chain(defines.iter().map(String::as_bytes)))
    }

    /// Returns the entry symbol: key and variant, then the first 16 digits of the source digest, so that a cubin names
    /// its own sources.
    pub fn entry(&self, arch: Arch) -> String {
        if let Some(plain) = self.key.plain() {
            let digest = self.source_digest(arch);
            return match plain.symbol.contains(DIGITS) {
                true => plain.symbol.replace(DIGITS, &digest.to_string()[..DIGITS.len()]),
                false => symbol(plain.symbol, &digest),
            };
        }
        let mut name = self.key.op.replace('.', "_");
        for field in &*self.key.fields {
            // A symbol cannot contain other signs.
            name.push_str(&format!("__{}_{}", field.name, field.value.replace('+', "_")));
        }
        for (number, value) in self.variant.numbers() {
            name.push_str(&format!("__{number}_{value}"));
        }
        symbol(&name, &self.source_digest(arch))
    }
}

/// Returns a name and the first digits of a digest.
fn symbol(name: &str, digest: &Digest) -> String {
    format!("{name}__{}", &digest.to_string()[..DIGITS.len()])
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
