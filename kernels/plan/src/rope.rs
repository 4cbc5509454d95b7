//! Tables of the rotary embedding.

use crate::buffer::Tensor;

/// Where the tables of a model are in a plan, each [seq_len, head_dim / 2], f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Cosines.
    pub cos: Tensor,
    /// Sines.
    pub sin: Tensor,
}

/// Cosines and sines, each [seq_len, d / 2].
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTables {
    /// Cosines.
    pub cos: Vec<f32>,
    /// Sines.
    pub sin: Vec<f32>,
}

/// The tables for a base and head dimension: angle `position * theta^(-2i/d)`, frequencies and angles in f32
/// as Hugging Face computes them, cosine and sine exact to their last bit.
pub fn tables(theta: f32, head_dim: u32, seq_len: u32) -> RopeTables {
    let half = head_dim / 2;
    let frequencies: Vec<f32> = (0..half).map(|i| 1.0 / theta.powf((2 * i) as f32 / head_dim as f32)).collect();
    let angles = (0..seq_len).flat_map(|position| frequencies.iter().map(move |f| f64::from(position as f32 * f)));
    let (cos, sin) = angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip();
    RopeTables { cos, sin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_zero_does_not_turn_and_frequency_zero_is_one() {
        let tables = tables(10_000.0, 16, 3);
        assert_eq!(tables.cos.len(), 3 * 8);
        assert!(tables.cos[..8].iter().all(|c| *c == 1.0));
        assert!(tables.sin[..8].iter().all(|s| *s == 0.0));
        assert_eq!(tables.cos[8], 1.0f64.cos() as f32);
        assert_eq!(tables.sin[16], 2.0f64.sin() as f32);
    }
}
