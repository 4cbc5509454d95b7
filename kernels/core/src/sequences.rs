//! Sequences that lie end to end in the places of a launch, each apart from the others.

/// Returns the sequences of these lengths as kernels read them, `[count, 2]`: place of the first token, and tokens. The
/// longest come first, of equal length the first; behind the last are empty ones.
///
/// # Panics
/// If there are more than `count`.
pub fn sequences(lengths: &[u32], count: usize) -> Vec<u32> {
    assert!(lengths.len() <= count, "{} sequences where {count} have room", lengths.len());
    let firsts = lengths.iter().scan(0, |end, length| Some(std::mem::replace(end, *end + length)));
    let mut all: Vec<[u32; 2]> = firsts.zip(lengths).map(|(first, length)| [first, *length]).collect();
    all.sort_by_key(|[_, length]| std::cmp::Reverse(*length));
    all.resize(count, [0, 0]);
    all.into_flattened()
}

/// Returns the position of each token in its sequence.
pub fn positions(lengths: &[u32]) -> impl Iterator<Item = u32> + '_ {
    lengths.iter().flat_map(|length| 0..*length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_come_first_and_empty_ones_last() {
        assert_eq!(sequences(&[2, 5, 1, 5], 6), [2, 5, 8, 5, 0, 2, 7, 1, 0, 0, 0, 0]);
        assert_eq!(positions(&[2, 3, 1]).collect::<Vec<_>>(), [0, 1, 0, 1, 2, 0]);
    }
}
