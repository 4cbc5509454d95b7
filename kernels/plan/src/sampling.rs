//! The rule by which tokens are drawn from logits.

/// Parameters of a draw, the same for all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// Draws from so many likeliest tokens; 0 for all.
    pub top_k: u32,
    /// Draws from the likeliest tokens that together have this probability; 1 for all.
    pub top_p: f32,
    pub seed: u64,
}

impl Sampling {
    /// Draws from the softmax as it is.
    pub const PLAIN: Self = Self { temperature: 1.0, top_k: 0, top_p: 1.0, seed: 0 };
    /// Takes the likeliest token.
    pub const LIKELIEST: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0 };
}
