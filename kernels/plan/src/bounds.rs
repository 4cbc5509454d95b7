//! Bounds on the size of a plan, checked before anything is lowered.

use precast_kernels::delta_rule;

use crate::config::{DeltaHeads, ModelConfig};
use crate::recipe::PlanError;

/// Most bytes of a plan: an offset in a buffer has 40 bits, and no GPU has a tenth of it.
pub(crate) const MOST_BYTES: u64 = 1 << 40;

/// A model's part in a plan.
pub(crate) struct ModelPart<'a> {
    pub config: &'a ModelConfig,
    /// Bytes per parameter: its weight and optimizer state.
    pub parameter_bytes: u64,
    /// Number of blocks whose activations are kept at a time.
    pub kept_layers: u32,
}

/// Refuses a plan whose largest parts alone are too large: parameters and the activations of each kept block. Buffers
/// of an accepted plan fit the offset bits.
pub(crate) fn check(parts: &[ModelPart<'_>], tokens: u32, activation_bytes: u64) -> Result<(), PlanError> {
    let bytes: u128 = parts
        .iter()
        .map(|part| {
            let activations = block_width(part.config) * u128::from(tokens) * u128::from(part.kept_layers);
            parameters(part.config) * u128::from(part.parameter_bytes) + activations * u128::from(activation_bytes)
        })
        .sum();
    refuse(bytes)
}

/// Refuses too many bytes.
pub(crate) fn refuse(bytes: u128) -> Result<(), PlanError> {
    if bytes < u128::from(MOST_BYTES) { Ok(()) } else { Err(PlanError::TooLarge { gib: (bytes >> 30) as u64 }) }
}

/// Returns a lower bound on the elements that the widest block keeps per token: queries, keys, values, gate and up; of
/// the gated delta rule what its first GEMM and its convolution compute, and its states.
fn block_width(c: &ModelConfig) -> u128 {
    let of_delta = |heads: DeltaHeads| {
        let states = u128::from(heads.width()) * u128::from(delta_rule::HEAD / delta_rule::CHUNK);
        u128::from(heads.projected()) + u128::from(heads.channels()) + states
    };
    let mixed = c.delta_heads.map_or(0, of_delta).max(c.projected_width().into());
    // Rows of experts are copied, and each is gated.
    let of_mlp = c.experts.map_or(2 * u128::from(c.intermediate), |experts| {
        u128::from(experts.choices()) * (2 * u128::from(c.hidden) + u128::from(c.intermediate))
    });
    mixed + of_mlp
}

/// Returns the number of elements of all matrices.
fn parameters(c: &ModelConfig) -> u128 {
    let [hidden, intermediate, vocab] = [c.hidden, c.intermediate, c.vocab].map(u128::from);
    let of_delta = c.delta_heads.map_or(0, |heads| u128::from(heads.projected()) + u128::from(heads.width()));
    let attention = (u128::from(c.projected_width()) + u128::from(c.attention_width())).max(of_delta);
    let block = hidden * (attention + 3 * intermediate * u128::from(c.mlps()));
    u128::from(c.depth()) * block + vocab * hidden * if c.tied { 1 } else { 2 }
}
