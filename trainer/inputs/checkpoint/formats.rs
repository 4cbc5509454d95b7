//! In which formats a model's tensors are stored.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use itertools::Itertools;
use precast_system::count;

/// How many tensors have which format. Reads `Q4_1+F32+Q6_K, 272 tensors`: that of most tensors first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formats(BTreeMap<String, usize>);

impl Formats {
    /// Of each tensor's format.
    pub(super) fn of<'a>(each: impl IntoIterator<Item = &'a str>) -> Self {
        Self(each.into_iter().map(str::to_owned).counts().into_iter().collect())
    }

    /// The formats that tensors have.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Display for Formats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.names().sorted_by_key(|name| Reverse(self.0[*name]));
        write!(f, "{}, {}", names.format("+"), count(self.0.values().sum(), "tensor"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_most_tensors_comes_first() {
        let formats = ["F32", "Q6_K", "Q4_1", "Q4_1", "F32", "Q4_1"];
        assert_eq!(Formats::of(formats).to_string(), "Q4_1+F32+Q6_K, 6 tensors");
        assert_eq!(Formats::of(["BF16"]).to_string(), "BF16, 1 tensor");
    }
}
