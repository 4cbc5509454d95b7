//! Frequencies and tables of the rotary embedding.

use std::f32::consts::TAU;

use precast_core::plan::Tensor;

/// A model's tables in a plan, each [seq_len, head_dim / 2], f32.
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

/// Scaling of frequencies, as `rope_type` of config.json names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scaling {
    Llama3(Llama3),
    /// Division by a factor, at least 1.
    Linear(f64),
}

impl Scaling {
    /// Scales a frequency, radians per position.
    fn scale(self, frequency: f32) -> f32 {
        match self {
            Self::Llama3(llama3) => llama3.scale(frequency),
            Self::Linear(factor) => frequency / factor as f32,
        }
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
    let plain = (0..head_dim / 2).map(|i| 1.0 / theta.powf((2 * i) as f32 / head_dim as f32));
    plain.map(|frequency| scaling.map_or(frequency, |scaling| scaling.scale(frequency))).collect()
}

/// Returns the tables of these frequencies: angle `position * frequency` in f32 as Hugging Face computes it, cosine and
/// sine exact to the last bit.
pub fn tables(frequencies: &[f32], seq_len: u32) -> RopeTables {
    let angles = (0..seq_len).flat_map(|position| frequencies.iter().map(move |f| f64::from(position as f32 * f)));
    let (cos, sin) = angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip();
    RopeTables { cos, sin }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_3_2: Llama3 =
        Llama3 { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position_embeddings: 8192 };

    #[test]
    fn position_zero_does_not_turn_and_frequency_zero_is_one() {
        let tables = tables(&frequencies(10_000.0, None, 16), 3);
        assert_eq!(tables.cos.len(), 3 * 8);
        assert!(tables.cos[..8].iter().all(|c| *c == 1.0));
        assert!(tables.sin[..8].iter().all(|s| *s == 0.0));
        assert_eq!(tables.cos[8], 1.0f64.cos() as f32);
        assert_eq!(tables.sin[16], 2.0f64.sin() as f32);
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
