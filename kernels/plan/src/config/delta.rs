//! Reads the heads of the gated delta rule, and refuses those that no kernel computes.

use precast_kernels::{conv, delta_rule};
use serde_json::Value;

use super::error::ConfigError;
use super::unsupported::refuse_at;
use crate::family::Family;

/// Heads of the gated delta rule, each of [`delta_rule::HEAD`] elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Query and key heads.
    pub keys: u32,
    /// A multiple of them.
    pub values: u32,
}

impl DeltaHeads {
    /// Returns the width of queries, keys and values, which are convolved.
    pub fn channels(self) -> u32 {
        (2 * self.keys + self.values) * delta_rule::HEAD
    }

    /// Returns the width of the output, and of its gates.
    pub fn width(self) -> u32 {
        self.values * delta_rule::HEAD
    }

    /// Returns the width of a row of the first GEMM: channels, gates, step sizes and decays.
    pub fn projected(self) -> u32 {
        self.channels() + self.width() + 2 * self.values
    }
}

/// Reads the heads of a family that has some.
///
/// # Errors
/// [`ConfigError`] for heads of another width, a convolution of another length, and value heads that key heads do not
/// share evenly.
pub(super) fn heads(config: &Value, family: &Family) -> Result<Option<DeltaHeads>, ConfigError> {
    if !family.delta_rule {
        return Ok(None);
    }
    let fixed = [
        ("linear_conv_kernel_dim", conv::TAPS as u64, "convolutions have 4 taps"),
        ("linear_key_head_dim", delta_rule::HEAD.into(), "heads of the delta rule have 128 elements"),
        ("linear_value_head_dim", delta_rule::HEAD.into(), "heads of the delta rule have 128 elements"),
    ];
    for (field, expected, reason) in fixed {
        if config[field].as_u64() != Some(expected) {
            return Err(refuse_at(field, &config[field], reason));
        }
    }
    let number = |field: &str| {
        let number = config[field].as_u64().filter(|heads| (1..=1 << 12).contains(heads));
        number.map(|heads| heads as u32).ok_or_else(|| refuse_at(field, &config[field], "expected a number of heads"))
    };
    let (keys, values) = (number("linear_num_key_heads")?, number("linear_num_value_heads")?);
    match values.is_multiple_of(keys) {
        true => Ok(Some(DeltaHeads { keys, values })),
        false => Err(ConfigError::Inconsistent(format!(
            "linear_num_value_heads is {values}, no multiple of linear_num_key_heads, {keys}"
        ))),
    }
}
