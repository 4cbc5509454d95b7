//! Matrices that are quantized while a model is loaded: a layer at a time is sent dense, to where activations lie later.

use crate::buffer::Tensor;
use crate::parameters::Parameter;

/// The matrices of a layer as they are sent, and what runs then.
#[derive(Clone, Debug, PartialEq)]
pub struct Staged {
    /// The phase that quantizes them.
    pub quantize: String,
    /// Behind it, where the model is to be certified, the phase in which the matrices as they are sent compute the layer.
    pub certify: Option<String>,
    /// Each dense, in the dtype of activations, with where it goes.
    pub parts: Vec<(Parameter, Tensor)>,
}

/// What the phases that quantize are called, before the number of the layer.
pub const QUANTIZE: &str = "quantise";
/// The same of those that certify; and the last of them, which says how far the model in int8 is from the dense one.
pub const CERTIFY: &str = "certify";
/// In place of casting master weights, where weights have come as a file holds them: the master weights from them. Those of layers
/// that lie nowhere as they are sent have phases of their own, of this name and the number of the layer.
pub const WIDEN: &str = "widen";
