//! Low-rank adapters of projections, an input of a plan besides base and recipe.
//!
//! `y = W x + scale B (A x)`, A `[rank, in]` and B `[out, rank]`: Hu et al., "LoRA: Low-Rank Adaptation of Large
//! Language Models", 2021 (arXiv 2106.09685). The scale is `alpha / rank`, or `alpha / sqrt(rank)` for large ranks:
//! Kalajdzievski, "A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023 (arXiv 2312.03732).

mod layout;
mod projections;

pub(crate) use layout::StackLayout;
pub use layout::{AdaptedPart, AdapterParameter, AdapterParameters, Factor};
pub use projections::{Adapter, Adapters, Target};
