//! The shape of a micro-batch.

use clap::Args;
use precast_plan::Recipe;
use serde::Serialize;

use super::values::count;

/// The shape of a micro-batch.
#[derive(Args, Clone, Copy, Debug, Serialize)]
#[command(next_help_heading = "Shape")]
pub struct ShapeOptions {
    /// Full sequences in a micro-batch
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = count(Recipe::MOST_TOKENS))]
    pub batch_size: u32,
    /// Most tokens in a sequence
    #[arg(long, value_name = "S", default_value_t = 1024, value_parser = count(Recipe::MOST_TOKENS))]
    pub seq_len: u32,
}
