//! What a layer does that another layer of its model may do otherwise.

use crate::rope::Scaling;

/// Values of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerConfig {
    /// Keys that a query sees, its own and those just before it; none: all before it.
    pub window: Option<u32>,
    /// Index in [`ropes`](super::ModelConfig::ropes) of what rotates its heads; none: nothing does.
    pub rope: Option<usize>,
}

impl LayerConfig {
    /// A layer that attends to all keys before a query and rotates by the first table.
    pub const FULL: Self = Self { window: None, rope: Some(0) };
}

/// A rotary embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f32,
    /// Scaling of the frequencies, if any.
    pub scaling: Option<Scaling>,
}
