//! A sequence that cannot be decoded on.

use precast_plan::decoding::MOST_STOPS;
use precast_runtime::DriverError;

use crate::options::Advised;

/// A sequence that cannot be decoded on.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("{}", .0.advised())]
    Driver(#[from] DriverError),
    /// No token is drawn from such logits.
    #[error(
        "sequence {sequence} at position {position}: a logit is not finite, and no token is drawn. The weights are \
        damaged or activations \
         overflow: try --precision fp32, and check the model with precast eval"
    )]
    NotFinite { sequence: u64, position: u32 },
    #[error(
        "the model names {0} tokens that end a text, more than {MOST_STOPS}: leave those that matter in eos_token_id \
        of its \
         generation_config.json and config.json"
    )]
    Stops(usize),
}
