//! Matrices quantized at load: one layer at a time is sent dense, to memory that activations use later.

use crate::parameters::Parameter;
use precast_core::plan::Tensor;

/// A layer's matrices as sent, and the phases to run then.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// Phase that quantizes them.
    pub quantize: String,
    /// For a certified model, the next phase, which computes the layer by the dense matrices.
    pub certify: Option<String>,
    /// Each matrix, dense in the dtype of activations, with its place.
    pub parts: Vec<(Parameter, Tensor)>,
}

/// Prefix of quantizing phases, before the number of the layer.
pub const QUANTIZE: &str = "quantize";
/// Prefix of certifying phases; alone, the last of them, which measures the distance of the int8 model from the dense
/// one.
pub const CERTIFY: &str = "certify";
/// Replaces `CAST` if weights come as a file holds them: makes the master weights from them. Layers
/// without a dense form have phases of their own, of this name and the number of the layer.
pub const WIDEN: &str = "widen";

/// Returns the prefix of a model's quantizing or certifying phases: those of other models than a first teacher have its
/// name in them.
pub(crate) fn name_of(prefix: &str, model: &str) -> String {
    if model == "teacher" { prefix.to_owned() } else { format!("{prefix}.{model}") }
}
