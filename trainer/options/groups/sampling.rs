//! Options of drawing tokens.

use clap::{Args, value_parser};
use precast_plan::Sampling;

use super::values::{share, temperature};

/// Options of drawing tokens, as they are asked for.
#[derive(Args, Clone, Copy, Debug)]
pub struct SamplingOptions {
    /// Divides logits before a token is drawn; at 0, not with --on-policy, the likeliest is taken [default: 1; 0 with
    /// --prompt]
    #[arg(long, value_name = "X", value_parser = temperature)]
    pub sampling_temperature: Option<f32>,
    /// Draw from the K likeliest tokens
    #[arg(long, value_name = "K", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub top_k: Option<u32>,
    /// Draw from the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", value_parser = share)]
    pub top_p: Option<f32>,
}

impl SamplingOptions {
    /// Returns the parameters of the draws, at a temperature where none is given.
    pub(crate) fn resolve(self, temperature: f32, seed: u64) -> Sampling {
        Sampling {
            temperature: self.sampling_temperature.unwrap_or(temperature),
            top_k: self.top_k.unwrap_or_default(),
            top_p: self.top_p.unwrap_or(1.0),
            seed,
        }
    }
}
