//! Random numbers with the bits of `philox.cuh`.

/// Computes four random numbers: Philox4x32-10.
#[inline(always)]
fn philox(mut key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let mut c = counter;
    for _ in 0..10 {
        let [a, b] = [(0xd251_1f53u32, c[0]), (0xcd9e_8d57, c[2])].map(|(m, c)| u64::from(m) * u64::from(c));
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

/// Returns the 64 random bits of a position of a sequence, `[position, lower half, upper half]`.
#[inline(always)]
pub(super) fn random(seed: u64, [position, low, high]: [u32; 3]) -> u64 {
    let [first, second, ..] = philox([seed as u32, (seed >> 32) as u32], [0, position, low, high]);
    u64::from(second) << 32 | u64::from(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123.
    #[test]
    fn numbers_are_philoxs() {
        let answers = [
            ([0; 2], [0; 4], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([!0; 2], [!0; 4], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0xa409_3822, 0x299f_31d0],
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (key, counter, expected) in answers {
            assert_eq!(philox(key, counter), expected);
        }
    }
}
