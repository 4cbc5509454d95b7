//! Lowers a model configuration to a plan: buffers and launches of a training step, as data.
//!
//! The order is linear: [`config`] reads a file by its [`family`]'s row, [`weights`] declares the weights on the
//! device, `block` and `model` describe the computation in `ops`, which fill parameter blocks, and the result is a
//! [`Plan`]. The same value is enumerated when a bundle is built, checked when a run starts, and executed step by step.
//! Nothing here touches a GPU or a file.

pub mod adapters;
mod block;
mod bounds;
pub mod cache;
mod cached;
pub mod category;
mod columns;
pub mod comparison;
mod comparison_plan;
pub mod config;
mod decode_check;
pub mod decoding;
mod enumerate;
pub mod estimate;
pub mod evaluation;
pub mod family;
mod formats;
pub mod gemm;
pub mod generation;
pub mod guard;
mod head;
mod hidden_plan;
mod lowered;
mod mixer;
mod model;
pub mod objective;
mod ops;
pub mod parameters;
mod predictions;
mod quantize;
pub mod recipe;
pub mod rope;
pub mod sampling;
mod sections;
mod sequences;
pub mod share;
pub mod single_file;
pub mod staged;
mod sweep_plan;
pub mod training;
pub mod weights;

pub use adapters::{Adapter, AdapterParameter, AdapterParameters, Adapters, Factor, Target};
pub use cache::{BitCounts, Slots};
pub use cached::{CachedTeacher, HeadWeights};
pub use comparison::TokenComparison;
pub use comparison_plan::{ComparisonBuffers, ComparisonPlan, Side};
pub use config::{
    ConfigError, DeltaHeads, ExpertsConfig, LayerConfig, LayerKind, ModelConfig, Multipliers, RopeConfig,
    pads_by_default, rewritten, unread_fields,
};
pub use decode_check::{DecodeCheckBuffers, DecodeCheckPlan};
pub use decoding::{DecodeRequest, Decoding};
pub use enumerate::build_keys;
pub use evaluation::EvaluationPlan;
pub use family::Family;
pub use formats::Formats;
pub use gemm::Gemm;
pub use generation::GenerationPlan;
pub use guard::Guard;
pub use head::Scores;
pub use hidden_plan::{HiddenBuffers, HiddenPlan};
pub use lowered::Lowered;
pub use model::Resident;
pub use objective::{Divergence, Objective};
pub use ops::Routes;
pub use parameters::{Parameter, Parameters};
pub use precast_core::plan::{
    Buffer, BufferId, Build, Category, Cublas, Exchange, Executor, Launch, Lifetime, MemoryTable, Node, Phase, Plan,
    Tensor, Touch, Work, keys,
};
pub use precast_core::{ChipMemory, chips, human_bytes};
pub use precast_kernels::Moments;
pub use predictions::{KnownTokens, TopTokens};
pub use recipe::{PlanError, Precision, Recipe, Recompute};
pub use sampling::Sampling;
pub use sequences::{Sequences, Shape};
pub use share::{Fold, GradientPart, Micro, Piece, Shards, Share, ShareError};
pub use staged::Staged;
pub use sweep_plan::{SweepBuffers, SweepPlan};
pub use training::{Student, Teacher, TrainingPlan, TrainingRequest};
pub use weights::{AdapterWeights, Weight, Weights};
