//! The registry of kernels, one line each: parses key texts, and lists kernels for every program.

use crate::abi::every_kernel;
use crate::erased::Registered;
use crate::key::Key;

/// A registered operation.
#[derive(Clone, Copy)]
pub struct Op {
    /// `family.operation`.
    pub name: &'static str,
    /// Parses the key's fields.
    parse: fn(&[(&str, &str)]) -> Option<Key>,
    /// See [`Reference::examples`](crate::Reference::examples).
    pub examples: fn() -> Vec<Key>,
}

/// Returns the registry's row of a kernel.
const fn op<K: Registered>() -> Op {
    Op {
        name: K::OP,
        parse: |pairs| K::from_pairs(pairs).map(Key::new),
        examples: || K::examples().into_iter().map(Key::new).collect(),
    }
}

macro_rules! ops {
    ($($kernel:ident,)*) => {
        /// Every operation, alphabetical.
        pub static OPS: &[Op] = &[$(op::<crate::abi::$kernel>()),*];
    };
}
every_kernel!(ops);

/// Returns the examples of every kernel.
pub fn examples() -> Vec<Key> {
    OPS.iter().flat_map(|op| (op.examples)()).collect()
}

impl Key {
    /// Parses a canonical text.
    ///
    /// # Errors
    /// [`KeyError`] if the operation is unknown or the text is not canonical.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed(text.to_owned());
        let (name, rest) = text.split_once('{').ok_or_else(malformed)?;
        let body = rest.strip_suffix('}').ok_or_else(malformed)?;
        let op = OPS.iter().find(|op| op.name == name);
        let op = op.ok_or_else(|| KeyError::UnknownOp { op: name.to_owned(), text: text.to_owned() })?;
        let pairs: Vec<(&str, &str)> = match body {
            "" => Vec::new(),
            body => body.split(',').map(|pair| pair.split_once('=')).collect::<Option<_>>().ok_or_else(malformed)?,
        };
        let key = (op.parse)(&pairs).ok_or_else(malformed)?;
        if key.text() == text { Ok(key) } else { Err(malformed()) }
    }
}

/// The text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No kernel family has this operation.
    #[error("unknown operation `{op}` in key `{text}`: this program and the bundle come from different versions")]
    UnknownOp {
        /// `family.operation` in the text.
        op: String,
        text: String,
    },
    /// The text is not canonical.
    #[error("malformed key `{0}`: expected the canonical text `op{{field=value,...}}`")]
    Malformed(String),
}
