//! The shape of a micro-batch.

use clap::Args;
use precast_plan::Recipe;
use serde::Serialize;

use super::values::count;

/// The shape of a micro-batch.
#[derive(Args, Clone, Copy, Debug, Serialize)]
#[command(next_help_heading = "Shape")]
pub struct ShapeOptions {
    /// Sequences in a micro-batch, if they are full
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = count(Recipe::MOST_TOKENS))]
    pub batch_size: u32,
    /// Tokens in a sequence, at most
    #[arg(long, value_name = "S", default_value_t = 1024, value_parser = count(Recipe::MOST_TOKENS))]
    pub seq_len: u32,
}
