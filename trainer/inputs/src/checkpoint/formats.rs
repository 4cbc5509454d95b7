//! In which formats a model's tensors are stored.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use itertools::Itertools;
use precast_system::count;

/// Says how many tensors have which format, by each tensor's: `Q4_1+F32+Q6_K, 272 tensors`, that of most tensors first.
pub(super) fn counted<'a>(each: impl Iterator<Item = &'a str>) -> String {
    let counts: BTreeMap<&str, usize> = each.counts().into_iter().collect();
    let names = counts.keys().sorted_by_key(|name| Reverse(counts[*name]));
    format!("{}, {}", names.format("+"), count(counts.values().sum(), "tensor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_of_most_tensors_comes_first() {
        let formats = ["F32", "Q6_K", "Q4_1", "Q4_1", "F32", "Q4_1"];
        assert_eq!(counted(formats.into_iter()), "Q4_1+F32+Q6_K, 6 tensors");
        assert_eq!(counted(["BF16"].into_iter()), "BF16, 1 tensor");
    }
}
