//! Blocks of columns that are rotated together.

/// Greatest depth: a CTA keeps a row of it in registers without a spill while it quantizes it, and sums of products of
/// values up to 127 fit 32 bits.
pub const MOST_DEPTH: u32 = 49_152;

/// Fewest columns of a rotation block: fewer spread no outliers, and rows would not be whole vectors.
const LEAST_ROTATION: u32 = 16;

/// Returns the columns of a rotation block in rows of k: the largest power of two up to 128 that divides k; none below
/// 16
pub fn rotation(k: u32) -> Option<u32> {
    let columns = 1 << k.trailing_zeros().min(7);
    (columns >= LEAST_ROTATION && k > 0).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_the_largest_power_of_two_that_divides_the_depth() {
        let depths = [896, 1536, 3584, 18944, 576, 1440, 272, 16, 128, 4864];
        assert_eq!(depths.map(|k| rotation(k).unwrap()), [128, 128, 128, 128, 64, 32, 16, 16, 128, 128]);
        assert_eq!([0, 1, 8, 24, 1000].map(rotation), [None; 5]);
    }
}
