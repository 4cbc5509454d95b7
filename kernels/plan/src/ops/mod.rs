//! The operations of a model, the only place that fills parameter blocks.
//!
//! An operation and its gradient share a file. An operation declares its outputs and adds the launches that compute
//! them; its name is the last part of labels and of buffer names.

mod adding;
mod attention;
mod decode;
mod delta_rule;
mod dequant;
mod embedding;
mod experts;
mod fake_quant;
mod fill;
mod grad_distance;
mod head;
mod linear;
mod lora;
mod norm;
mod optimizer;
mod postpone;
mod qk_norm;
mod qk_norm_gated;
mod qk_norm_row;
mod quantize;
mod ranks;
mod replicas;
mod rope;
mod rows;
mod scale;
mod swiglu;

pub(crate) use adding::{ForwardPass, Gradients, Ops, Semaphores};
pub(crate) use attention::{Attended, Heads};
pub(crate) use delta_rule::{DeltaRuleHeads, DeltaRuleSaved};
pub(crate) use embedding::Sorted;
pub use experts::Routes;
pub(crate) use linear::{Adding, Given, Projected};
pub(crate) use norm::{Normed, NormedBranch};
pub(crate) use optimizer::{OptimizerState, StepTensors};
pub(crate) use replicas::Sums;
pub(crate) use rows::ActivationRows;
