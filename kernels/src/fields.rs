//! What is baked into a kernel: the typed fields of its key, declared by [`key!`](crate::key!).

use std::fmt;

use crate::dtype::Dtype;
use crate::format::{Block, Format};

/// A value baked into a key.
pub trait FieldValue: Copy {
    /// The text that a key spells it with.
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
        // Token ids are not something to compute with, and what computes with i8 says so in its name: no key fields.
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
        let dense = Dtype::parse(text).map(Format::Dense);
        dense.or_else(|| Block::parse(text).map(Format::Block))
    }
    fn define(self) -> String {
        match self {
            Format::Dense(dtype) => dtype.define(),
            Format::Block(block) => block.define(),
        }
    }
}

impl FieldValue for Block {
    fn text(self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        Block::ALL.into_iter().find(|block| block.to_string() == text)
    }
    fn define(self) -> String {
        // A structure of `blocks.cuh`.
        self.to_string()
    }
}

/// One field of a key, erased to text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    /// As its key spells it.
    pub value: String,
    /// What the macro `KEY_<NAME>` is defined as.
    pub define: String,
}

/// The typed fields of a key. Implemented by [`key!`](macro@crate::key).
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

        impl $crate::fields::Fields for $name {
            const OP: &'static str = $op;
            fn fields(&self) -> Vec<$crate::fields::Field> {
                vec![$($crate::fields::Field {
                    name: stringify!($field),
                    value: $crate::fields::FieldValue::text(self.$field),
                    define: $crate::fields::FieldValue::define(self.$field),
                }),*]
            }
            fn from_pairs(pairs: &[(&str, &str)]) -> Option<Self> {
                let mut pairs = pairs.iter();
                let key = Self { $($field: match pairs.next() {
                    Some((stringify!($field), value)) => $crate::fields::FieldValue::parse(value)?,
                    _ => return None,
                }),* };
                pairs.next().is_none().then_some(key)
            }
        }
    };
}

/// The canonical text of a typed key.
pub(crate) fn text<F: Fields>(key: &F) -> String {
    let fields: Vec<String> = key.fields().into_iter().map(|field| format!("{}={}", field.name, field.value)).collect();
    format!("{}{{{}}}", F::OP, fields.join(","))
}
