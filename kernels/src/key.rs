//! Keys: typed values naming what a kernel computes, with a canonical text that parses back.
//!
//! The text is `op{field=value,...}` with the fields in alphabetical order and nothing optional:
//! `rmsnorm.fwd{h=896,residual=false,x=bf16}`. Two keys are equal exactly when their texts are.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::arch::Arch;
use crate::dtype::Dtype;
use crate::format::Format;
use crate::kernel::{AnyKernel, Kernel};
use crate::tuned;
use crate::variant::Variant;

/// A value baked into a key.
pub trait FieldValue: Copy {
    /// Canonical text.
    fn text(self) -> String;
    /// Reads the canonical text.
    fn parse(text: &str) -> Option<Self>;
    /// The macro value the CUDA source sees.
    fn define(self) -> String;
}

impl FieldValue for u32 {
    fn text(self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn define(self) -> String {
        self.to_string()
    }
}

impl FieldValue for bool {
    fn text(self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn define(self) -> String {
        u32::from(self).to_string()
    }
}

impl FieldValue for Dtype {
    fn text(self) -> String {
        self.name().to_owned()
    }
    fn parse(text: &str) -> Option<Self> {
        // Token ids are not something to compute with, so `u32` is no key field.
        [Dtype::Bf16, Dtype::F32].into_iter().find(|dtype| dtype.name() == text)
    }
    fn define(self) -> String {
        self.c_name().to_owned()
    }
}

impl FieldValue for Format {
    fn text(self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        // No kernel computes with blocks: they are made dense before.
        Dtype::parse(text).map(Format::Dense)
    }
    fn define(self) -> String {
        self.dtype().map_or_else(|| self.to_string(), Dtype::define)
    }
}

/// One field of a key, erased to text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Field name.
    pub name: &'static str,
    /// Canonical value.
    pub value: String,
    /// What the macro `KEY_<NAME>` is defined as.
    pub define: String,
}

/// The typed fields of a key. Implemented by [`key!`](crate::key).
pub trait Fields: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// Operation name: `family.operation`.
    const OP: &'static str;
    /// The fields in alphabetical order.
    fn fields(&self) -> Vec<Field>;
    /// Reads the fields from `name=value` pairs in canonical order.
    fn from_pairs(pairs: &[(&str, &str)]) -> Option<Self>;
}

/// Declares a kernel's key type: its operation name and baked fields, alphabetical.
#[macro_export]
macro_rules! key {
    ($(#[$meta:meta])* pub struct $name:ident = $op:literal { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $(#[doc = concat!("Baked field `", stringify!($field), "`.")] pub $field: $type),* }

        impl $crate::key::Fields for $name {
            const OP: &'static str = $op;
            fn fields(&self) -> Vec<$crate::key::Field> {
                vec![$($crate::key::Field {
                    name: stringify!($field),
                    value: $crate::key::FieldValue::text(self.$field),
                    define: $crate::key::FieldValue::define(self.$field),
                }),*]
            }
            fn from_pairs(pairs: &[(&str, &str)]) -> Option<Self> {
                let mut pairs = pairs.iter();
                let key = Self { $($field: match pairs.next() {
                    Some((stringify!($field), value)) => $crate::key::FieldValue::parse(value)?,
                    _ => return None,
                }),* };
                pairs.next().is_none().then_some(key)
            }
        }
    };
}

/// A key of any operation. Compares, orders and hashes by its canonical text.
#[derive(Clone)]
pub struct Key {
    text: Arc<str>,
    kernel: Arc<dyn AnyKernel>,
}

impl Key {
    /// Erases a typed key.
    pub fn new<K: Kernel>(kernel: K) -> Self {
        Self { text: text(&kernel).into(), kernel: Arc::new(kernel) }
    }

    /// The canonical text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the key computes.
    pub fn kernel(&self) -> &dyn AnyKernel {
        &*self.kernel
    }

    /// The variant for a launch: what was measured fastest, else by the family's rule.
    pub fn select(&self, params: &[u8], arch: Arch) -> Variant {
        tuned::select(self, params, arch).unwrap_or_else(|| self.kernel.select(params, arch))
    }

    /// Reads a canonical text.
    ///
    /// # Errors
    /// [`KeyError`] where the operation is unknown or the text is not exactly what a key prints.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed(text.to_owned());
        let (op, rest) = text.split_once('{').ok_or_else(malformed)?;
        let body = rest.strip_suffix('}').ok_or_else(malformed)?;
        let info = crate::op(op).ok_or_else(|| KeyError::UnknownOp { op: op.to_owned(), text: text.to_owned() })?;
        let pairs: Vec<(&str, &str)> = match body {
            "" => Vec::new(),
            body => body.split(',').map(|pair| pair.split_once('=')).collect::<Option<_>>().ok_or_else(malformed)?,
        };
        let key = (info.parse)(&pairs).ok_or_else(malformed)?;
        if key.text() == text { Ok(key) } else { Err(malformed()) }
    }
}

/// The canonical text of a typed key.
pub(crate) fn text<F: Fields>(key: &F) -> String {
    let fields: Vec<String> = key.fields().into_iter().map(|field| format!("{}={}", field.name, field.value)).collect();
    format!("{}{{{}}}", F::OP, fields.join(","))
}

/// The text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No kernel family has this operation.
    #[error("unknown operation `{op}` in key `{text}`: this program and the bundle come from different versions")]
    UnknownOp {
        /// Operation looked for.
        op: String,
        /// The whole text.
        text: String,
    },
    /// The text is not canonical.
    #[error("malformed key `{0}`: expected `op{{field=value,...}}` exactly as a key prints itself")]
    Malformed(String),
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
