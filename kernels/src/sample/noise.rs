//! Gumbel noise with the bits of `noise.cuh`.

use super::polynomial::{ln, ln_1p};

/// Computes four random numbers: Philox4x32-10.
#[inline(always)]
pub(super) fn philox(mut key: [u32; 2], counter: [u32; 4]) -> [u32; 4] {
    let mut c = counter;
    for _ in 0..10 {
        let [a, b] = [(0xd251_1f53u32, c[0]), (0xcd9e_8d57, c[2])].map(|(m, c)| u64::from(m) * u64::from(c));
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    c
}

/// Computes -ln(-ln(1 - u)) for the u of a random number.
#[inline(always)]
pub(super) fn gumbel(random: u32) -> f32 {
    const UNIT: f32 = 1.0 / (1u64 << 32) as f32;
    let unit = |number: u32| (number as f32).mul_add(UNIT, UNIT / 2.0);
    let exponential = if random < 0x5555_5555 { -ln_1p(-unit(random)) } else { -ln(unit(!random)) };
    -ln(exponential)
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

    #[test]
    fn noise_is_gumbels_to_both_ends() {
        for random in (0..=u32::MAX).step_by(65_521).chain([0, 1, 0x5555_5554, 0x5555_5555, u32::MAX]) {
            let u = (f64::from(random) + 0.5) / 2.0f64.powi(32);
            let exact = -(-(-u).ln_1p()).ln();
            assert!((f64::from(gumbel(random)) - exact).abs() <= 4e-7 * exact.abs().max(1.0), "{random}");
        }
    }
}
