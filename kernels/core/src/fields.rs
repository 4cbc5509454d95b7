//! Typed fields of a key, baked into its kernel, declared by [`key!`](crate::key!).

use std::fmt;
use std::iter::Peekable;
use std::slice::Iter;

use crate::dtype::Dtype;
use crate::format::{Block, Format};

/// A value baked into a key.
pub trait FieldValue: Copy + PartialEq {
    /// The value that keys omit, if any.
    const LEFT_OUT: Option<Self> = None;

    /// Returns its text in a key.
    fn text(self) -> String;
    /// Parses the canonical text.
    fn parse(text: &str) -> Option<Self>;
    /// Returns its macro value in the CUDA source: its text, where that is a name or a number there.
    fn define(self) -> String {
        self.text()
    }
}

impl FieldValue for u32 {
    fn text(self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// A number that only some keys of an operation have.
impl FieldValue for Option<u32> {
    const LEFT_OUT: Option<Self> = Some(None);

    fn text(self) -> String {
        self.map(FieldValue::text).unwrap_or_default()
    }
    fn parse(text: &str) -> Option<Self> {
        <u32 as FieldValue>::parse(text).map(Some)
    }
}

/// A property that few keys of an operation have: the others omit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag(pub bool);

impl Flag {
    /// True if a key has the property.
    pub fn is_set(self) -> bool {
        self.0
    }
}

impl FieldValue for Flag {
    const LEFT_OUT: Option<Self> = Some(Self(false));

    fn text(self) -> String {
        self.0.text()
    }
    fn parse(text: &str) -> Option<Self> {
        <bool as FieldValue>::parse(text).map(Self)
    }
    fn define(self) -> String {
        self.0.define()
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
        // Token ids are no operands of arithmetic, and 8-bit values are a format: they have scales.
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
        let dense = Dtype::parse(text).or((text == Dtype::I8.name()).then_some(Dtype::I8)).map(Format::Dense);
        dense.or_else(|| Block::parse(text).map(Format::Block))
    }
    fn define(self) -> String {
        match self {
            Format::Dense(dtype) => dtype.define(),
            Format::Block(block) => block.define(),
        }
    }
}

/// Its text is a structure of `blocks.cuh`.
impl FieldValue for Block {
    fn text(self) -> String {
        self.to_string()
    }
    fn parse(text: &str) -> Option<Self> {
        Block::ALL.into_iter().find(|block| block.to_string() == text)
    }
}

/// One field of a key, erased to text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in keys: `h`.
    pub name: &'static str,
    /// Text in its key.
    pub value: String,
    /// Definition of the macro `KEY_<NAME>`.
    pub define: String,
}

impl Field {
    /// Returns a field with its value, unless keys omit that.
    pub fn new<V: FieldValue>(name: &'static str, value: V) -> Option<Self> {
        (Some(value) != V::LEFT_OUT).then(|| Self { name, value: value.text(), define: value.define() })
    }
}

/// Reads the next pair if it has this name; else returns the value that keys omit, if any.
pub fn take<V: FieldValue>(pairs: &mut Peekable<Iter<'_, (&str, &str)>>, name: &str) -> Option<V> {
    match pairs.next_if(|(next, _)| *next == name) {
        Some((_, text)) => V::parse(text),
        None => V::LEFT_OUT,
    }
}

/// The typed fields of a key. Implemented by [`key!`](macro@crate::key).
pub trait Fields: Clone + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// Operation name: `family.operation`.
    const OP: &'static str;
    /// Returns the fields in alphabetical order.
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
                let fields: Vec<Option<$crate::fields::Field>> =
                    vec![$($crate::fields::Field::new(stringify!($field), self.$field)),*];
                fields.into_iter().flatten().collect()
            }
            fn from_pairs(pairs: &[(&str, &str)]) -> Option<Self> {
                let mut pairs = pairs.iter().peekable();
                let key = Self { $($field: $crate::fields::take(&mut pairs, stringify!($field))?),* };
                pairs.next().is_none().then_some(key)
            }
        }
    };
}

/// Returns the canonical text of a typed key.
pub(crate) fn text<F: Fields>(key: &F) -> String {
    let fields: Vec<String> = key.fields().into_iter().map(|field| format!("{}={}", field.name, field.value)).collect();
    format!("{}{{{}}}", F::OP, fields.join(","))
}
