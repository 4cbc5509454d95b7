//! Weights as values: their tensor, format and role in training.

mod adapters;
mod int8;
mod layer;
mod model;
mod rounded;
mod scratch;
mod weight;

pub use adapters::AdapterWeights;
pub(crate) use int8::Passes;
pub use int8::{Int8Matrix, Int8Rows};
pub use layer::{Blocks, DeltaRuleWeights, ExpertWeights, Layer, Linear, LinearAdapter, Matrix, Norm};
pub use model::Weights;
pub(crate) use rounded::Rounded;
pub use weight::{Role, Trained, Weight};
