//! Formats of the file that a run trains for.

use clap::ValueEnum;
use precast_kernels::Block;
use precast_plan::{Formats, ModelConfig};
use serde::Serialize;

/// Format of the matrices of layers, as llama.cpp names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[allow(non_camel_case_types)] // ggml's own names
pub enum LayerBlocks {
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q4_0")]
    Q4_0,
    #[value(name = "q4_k")]
    Q4_K,
}

/// Format of embedding and head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[allow(non_camel_case_types)] // ggml's own names
pub enum HeadBlocks {
    #[value(name = "q8_0")]
    Q8_0,
    #[value(name = "q6_k")]
    Q6_K,
}

impl From<LayerBlocks> for Block {
    fn from(layers: LayerBlocks) -> Self {
        match layers {
            LayerBlocks::Q8_0 => Self::Q8_0,
            LayerBlocks::Q4_0 => Self::Q4_0,
            LayerBlocks::Q4_K => Self::Q4_K,
        }
    }
}

impl From<HeadBlocks> for Block {
    fn from(head: HeadBlocks) -> Self {
        match head {
            HeadBlocks::Q8_0 => Self::Q8_0,
            HeadBlocks::Q6_K => Self::Q6_K,
        }
    }
}

/// Returns the formats of layers, and of embedding and head, which follow from those of layers if nothing is asked for.
pub fn blocks(layers: LayerBlocks, head: Option<HeadBlocks>) -> (Block, Block) {
    let layers = layers.into();
    (layers, head.map_or_else(|| Formats::usual_ends(layers), Block::from))
}

/// Returns the formats of a model's matrices.
pub fn formats(config: &ModelConfig, (layers, head): (LayerBlocks, Option<HeadBlocks>)) -> Formats {
    let (layers, ends) = blocks(layers, head);
    Formats::rounded(config, layers, ends)
}
