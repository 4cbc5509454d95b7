//! Frequencies and tables of the rotary embedding.

use std::f32::consts::TAU;
use std::f64::consts::TAU as TAU64;

use precast_core::plan::Tensor;

/// A model's tables in a plan, each [seq_len, rotary / 2], f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    pub cos: Tensor,
    pub sin: Tensor,
}

/// Cosines and sines, each [seq_len, d / 2].
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTables {
    pub cos: Vec<f32>,
    pub sin: Vec<f32>,
}

/// Llama 3.1's scaling of frequencies: those below `low_freq_factor` turns over the original length are divided by
/// `factor`, those above `high_freq_factor` turns stay, and between them the result is interpolated linearly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3 {
    /// Divisor of low frequencies, at least 1.
    pub factor: f64,
    /// Turns below which a frequency is low.
    pub low_freq_factor: f64,
    /// Turns above which a frequency is high, more than `low_freq_factor`.
    pub high_freq_factor: f64,
    /// Context length of the original training, positions.
    pub original_max_position_embeddings: u32,
}

/// YaRN's scaling (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023): pair `i` of
/// a head is divided by `factor` to the share `clamp((i - low) / (high - low), 0, 1)` and stays to the rest, where
/// `low` and `high` are the pairs that turn `beta_fast` and `beta_slow` times over the original length:
/// `i(turns) = d ln(original / (2 pi turns)) / (2 ln theta)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    /// Divisor of low frequencies, at least 1.
    pub factor: f64,
    /// Factor of cosines and sines; scores have its square.
    pub attention_factor: f64,
    /// Turns above which a frequency stays.
    pub beta_fast: f64,
    /// Turns below which a frequency is divided.
    pub beta_slow: f64,
    /// True if `low` and `high` are rounded away from each other.
    pub truncate: bool,
    /// Context length of the original training, positions.
    pub original_max_position_embeddings: u32,
}

/// Scaling of frequencies, as `rope_type` of config.json names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    Llama3(Llama3),
    /// Division by a factor, at least 1.
    Linear(f64),
    Yarn(Yarn),
}

impl Scaling {
    /// Scales the frequency of a pair of elements, radians per position.
    fn scale(self, frequency: f32, pair: u32, theta: f32, head_dim: u32) -> f32 {
        match self {
            Self::Llama3(llama3) => llama3.scale(frequency),
            Self::Linear(factor) => frequency / factor as f32,
            Self::Yarn(yarn) => yarn.scale(frequency, pair, theta, head_dim),
        }
    }

    /// Returns the factor of cosines and sines.
    pub fn attention_factor(self) -> f32 {
        if let Self::Yarn(yarn) = self { yarn.attention_factor as f32 } else { 1.0 }
    }
}

impl Yarn {
    /// Returns the logarithmic factor of the paper's section 3.4, weighed by `mscale`, as DeepSeek does.
    pub fn mscale(factor: f64, mscale: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
    }

    /// Scales a frequency, rounded as in transformers' `_compute_yarn_parameters` but for one division.
    fn scale(self, frequency: f32, pair: u32, theta: f32, head_dim: u32) -> f32 {
        let (width, original) = (f64::from(head_dim), f64::from(self.original_max_position_embeddings));
        let of = |turns: f64| width * (original / (turns * TAU64)).ln() / (2.0 * f64::from(theta).ln());
        let (low, high) = (of(self.beta_fast), of(self.beta_slow));
        let (low, high) = if self.truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(width - 1.0));
        let span = if low == high { 0.001 } else { high - low };
        let kept = 1.0 - ((pair as f32 - low as f32) / span as f32).clamp(0.0, 1.0);
        frequency / self.factor as f32 * (1.0 - kept) + frequency * kept
    }
}

impl Llama3 {
    /// Scales a frequency, radians per position. Each operation is rounded to f32 in the order of transformers'
    /// `_compute_llama3_parameters`: PyTorch divides a number by a tensor as a multiplication by the reciprocal.
    fn scale(self, frequency: f32) -> f32 {
        let original = f64::from(self.original_max_position_embeddings);
        let (factor, low, high) = (self.factor as f32, self.low_freq_factor, self.high_freq_factor);
        let wavelength = (1.0 / frequency) * TAU;
        if wavelength < (original / high) as f32 {
            frequency
        } else if wavelength > (original / low) as f32 {
            frequency / factor
        } else {
            let smooth = ((1.0 / wavelength) * original as f32 - low as f32) / (high - low) as f32;
            (1.0 - smooth) * frequency / factor + smooth * frequency
        }
    }
}

/// Returns the frequency of each pair of elements of a head, radians per position: `theta^(-2i/d)`, scaled if `scaling`
/// is given, in f32 as Hugging Face computes them.
pub fn frequencies(theta: f32, scaling: Option<Scaling>, head_dim: u32) -> Vec<f32> {
    let frequency = |pair: u32| {
        let plain = 1.0 / theta.powf((2 * pair) as f32 / head_dim as f32);
        scaling.map_or(plain, |scaling| scaling.scale(plain, pair, theta, head_dim))
    };
    (0..head_dim / 2).map(frequency).collect()
}

/// Returns the tables of these frequencies: angle `position * frequency` in f32 as Hugging Face computes it, cosine and
/// sine exact to the last bit, times a factor.
pub fn tables(frequencies: &[f32], factor: f32, seq_len: u32) -> RopeTables {
    let angles = (0..seq_len).flat_map(|position| frequencies.iter().map(move |f| f64::from(position as f32 * f)));
    let (cos, sin) = angles.map(|angle| (angle.cos() as f32 * factor, angle.sin() as f32 * factor)).unzip();
    RopeTables { cos, sin }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_3_2: Llama3 =
        Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192 };

    #[test]
    fn position_zero_does_not_turn_and_frequency_zero_is_one() {
        let tables = tables(&frequencies(10_000.0, None, 16), 1.0, 3);
        assert_eq!(tables.cos.len(), 3 * 8);
        assert!(tables.cos[..8].iter().all(|c| *c == 1.0));
        assert!(tables.sin[..8].iter().all(|s| *s == 0.0));
        assert_eq!(tables.cos[8], 1.0f64.cos() as f32);
        assert_eq!(tables.sin[16], 2.0f64.sin() as f32);
    }

    /// Compares with numbers of transformers 5.17's `_compute_yarn_parameters`.
    #[test]
    fn yarn_is_as_transformers_computes_it() {
        let yarn = Yarn {
            factor: 8.0,
            attention_factor: 1.25,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            original_max_position_embeddings: 128,
        };
        let near = |yarn: Yarn, theta: f32, expected: [f64; 8]| {
            let found = frequencies(theta, Some(Scaling::Yarn(yarn)), 16);
            let is_near =
                found.iter().zip(expected).all(|(found, expected)| (f64::from(*found) / expected - 1.0).abs() < 1e-6);
            assert!(is_near, "{found:?} is not {expected:?}");
        };
        let low = [0.0012499999720603228, 0.00039528473280370235, 0.0001250000059371814, 3.9528473280370235e-05];
        let with = |high: [f64; 4]| std::array::from_fn(|i| if i < 4 { high[i] } else { low[i - 4] });
        near(yarn, 1e4, with([1.0, 0.2239946573972702, 0.0416666641831398, 0.0039528473280370235]));
        let wide = Yarn { beta_fast: 16.0, beta_slow: 0.5, ..yarn };
        near(wide, 1e4, with([1.0, 0.24705293774604797, 0.05625000223517418, 0.010870330035686493]));
        let exact = Yarn { truncate: false, ..yarn };
        near(exact, 1e4, with([1.0, 0.2105391025543213, 0.033156611025333405, 0.0039528473280370235]));
        // OLMo 3's.
        let olmo3 = Yarn { original_max_position_embeddings: 8192, ..yarn };
        let [high, low] = [
            [1.0, 0.193922758102417, 0.03760603070259094, 0.005165637470781803],
            [0.0005892555927857757, 3.428102354519069e-05, 6.647869668086059e-06, 1.289173155782919e-06],
        ];
        near(olmo3, 5e5, std::array::from_fn(|i| if i < 4 { high[i] } else { low[i - 4] }));
        let turned = tables(&[0.5], Scaling::Yarn(yarn).attention_factor(), 2);
        assert_eq!(
            (&turned.cos[..], turned.sin[1]),
            (&[1.25, 0.5f64.cos() as f32 * 1.25][..], 0.5f64.sin() as f32 * 1.25)
        );
    }

    /// Compares with f64. High frequencies are the unscaled ones and low ones exactly `factor` less.
    #[test]
    fn llama3_divides_low_frequencies_and_blends_into_high_ones() {
        let plain = frequencies(5e5, None, 64);
        let scaled = frequencies(5e5, Some(Scaling::Llama3(LLAMA_3_2)), 64);
        let mut blended = 0;
        for (i, (plain, scaled)) in plain.iter().zip(&scaled).enumerate() {
            let frequency = 5e5f64.powf(-2.0 * i as f64 / 64.0);
            let turns = 8192.0 * frequency / std::f64::consts::TAU;
            let expected = if turns > 4.0 {
                assert_eq!(scaled, plain);
                frequency
            } else if turns < 1.0 {
                assert_eq!(*scaled, plain / 32.0);
                frequency / 32.0
            } else {
                blended += 1;
                let smooth = (turns - 1.0) / 3.0;
                frequency * ((1.0 - smooth) / 32.0 + smooth)
            };
            assert!((f64::from(*scaled) / expected - 1.0).abs() < 2e-6, "{i}: {scaled} is not {expected}");
        }
        assert_eq!((scaled[0], blended), (1.0, 3));
    }
}
