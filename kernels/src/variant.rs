//! Variants: how a key is built. Kept apart from keys, which say what is computed.

use std::fmt;

/// Named numbers a kernel is built with (tile, stages, warps, ...), alphabetical.
///
/// Each becomes the macro `VARIANT_<NAME>`. Every variant names `threads`, the block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Variant(pub &'static [(&'static str, u32)]);

impl Variant {
    /// Whether the variant has such a number.
    pub fn has(self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| *field == name)
    }

    /// A named number.
    ///
    /// # Panics
    /// If the variant has no such number: a kernel asks its own variants only.
    pub fn get(self, name: &str) -> u32 {
        match self.0.iter().find(|(field, _)| *field == name) {
            Some((_, value)) => *value,
            None => panic!("variant `{self}` has no `{name}`"),
        }
    }

    /// Threads in a block.
    pub fn threads(self) -> u32 {
        self.get("threads")
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}
