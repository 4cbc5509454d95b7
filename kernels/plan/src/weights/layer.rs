//! Weights of a transformer block.

use precast_core::plan::Tensor;
use precast_kernels::{Gamma, Out};

use super::int8::Int8Matrix;
use super::weight::{Trained, Weight};
use crate::adapters::AdaptedPart;
use crate::config::ExpertsConfig;

/// The weights of an RMSNorm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Scale, one element per column.
    pub gamma: Weight,
    /// Form in which that is stored.
    pub gamma_form: Gamma,
    /// Added to the mean square.
    pub eps: f32,
}

/// The matrix of a linear layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// Dense, as GEMMs read it.
    Dense(Weight),
    /// In blocks, and frozen.
    Blocks(Blocks),
    /// In int8, rotated.
    Int8(Int8Matrix),
}

/// A matrix in blocks, dequantized just before a GEMM reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    /// Its rows in consecutive parts, in formats that may differ.
    pub parts: Vec<Tensor>,
    /// Scratch for its dense elements, shared with other matrices: the first for all of them; groups of experts take
    /// both in turn.
    pub scratch: [Tensor; 2],
}

impl Matrix {
    /// Returns its optimizer state, if it trains.
    pub(crate) fn trained(&self) -> Option<Trained> {
        match self {
            Matrix::Dense(Weight { role, .. }) | Matrix::Int8(Int8Matrix { role, .. }) => role.trained(),
            Matrix::Blocks(_) => None,
        }
    }

    /// Returns the tensor of a dense matrix.
    ///
    /// # Panics
    /// If it is in blocks or in int8.
    pub(crate) fn dense(&self) -> Tensor {
        match self {
            Matrix::Dense(weight) => weight.tensor,
            Matrix::Blocks(_) | Matrix::Int8(_) => panic!("a GEMM of dense matrices reads dense weights"),
        }
    }

    /// Returns an int8 matrix.
    ///
    /// # Panics
    /// If it is in another format.
    pub(crate) fn int8(&self) -> Int8Matrix {
        match self {
            Matrix::Int8(int8) => *int8,
            Matrix::Dense(_) | Matrix::Blocks(_) => panic!("a GEMM in int8 reads weights in int8"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// `[n, k]`, row-major
    pub weight: Matrix,
    /// `[n]`, or none.
    pub bias: Option<Weight>,
    /// Output features.
    pub n: u32,
    /// Input features.
    pub k: u32,
    /// Adapters whose results are added to its output.
    pub adapter: Option<LinearAdapter>,
}

impl Linear {
    /// True if its matrix or its adapters train.
    pub(crate) fn trains(&self) -> bool {
        self.weight.trained().is_some() || self.adapter.is_some()
    }
}

/// The adapters of a linear layer: `scale B (A x)`, added to each adapted part of its output.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearAdapter {
    /// `[parts * rank, k]`
    pub a: Weight,
    /// `[width of all parts, rank]`
    pub b: Weight,
    /// Rank of each part.
    pub rank: u32,
    /// The parts of the output that are adapted.
    pub parts: Vec<AdaptedPart>,
}

impl LinearAdapter {
    /// Returns the columns of all `A x` side by side.
    pub(crate) fn columns(&self) -> u32 {
        self.parts.len() as u32 * self.rank
    }
}

/// The weights of the gated delta rule besides its GEMMs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeltaRuleWeights {
    /// `[channels, 1, 4]`
    pub conv: Weight,
    /// `A_log` and `dt_bias` of value heads; read in f32, whatever the precision.
    pub decay: Weight,
    /// Norm of each head of the output.
    pub norm: Norm,
}

/// The experts of a layer, whose weights are its gate and up, and down: those of each expert, one below the other.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertWeights {
    /// Gives logits of experts, then of the shared one's gate; rows behind are zero.
    pub router: Linear,
    pub config: ExpertsConfig,
    /// Neighboring experts whose matrices one GEMM reads: all of them, or as many as are dequantized at a time.
    pub group: u32,
}

/// The weights of a transformer block.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Norm before attention, if any.
    pub input_norm: Option<Norm>,
    /// Queries, keys and values, with what else is computed of the same input.
    pub qkv: Linear,
    /// Weights of the gated delta rule, which the layer has in place of attention.
    pub delta_rule: Option<DeltaRuleWeights>,
    /// Norms of queries and keys, if the family has them: both scales in one, of a head each or of all heads.
    pub qk_norm: Option<Norm>,
    pub o: Linear,
    /// Norm of what attention adds to the residual stream, if any.
    pub o_norm: Option<Norm>,
    /// Norm before the MLP, if any.
    pub post_norm: Option<Norm>,
    /// Experts in place of one MLP, if any.
    pub experts: Option<ExpertWeights>,
    /// Gate and up projection.
    pub gate_up: Linear,
    pub down: Linear,
    /// Norm of what the MLP adds to the residual stream, if any.
    pub down_norm: Option<Norm>,
}

impl Layer {
    /// True if any of its GEMMs trains.
    pub(crate) fn trains(&self) -> bool {
        self.linears().into_iter().any(Linear::trains)
    }

    /// Returns the formats that its GEMMs read activations in; if gradients pass, the producers of gradients use
    /// them too.
    pub(crate) fn out(&self) -> Out {
        match self.qkv.weight {
            Matrix::Dense(_) | Matrix::Blocks(_) => Out::Dense,
            Matrix::Int8(Int8Matrix { columns: Some(_), .. }) => Out::DenseAndInt8,
            Matrix::Int8(Int8Matrix { columns: None, .. }) => Out::Int8,
        }
    }

    /// Returns the formats in which the norm before the MLP is read: a router's logits are computed in the dtype of
    /// activations.
    pub(crate) fn post_out(&self) -> Out {
        match (self.out(), &self.experts) {
            (Out::Int8, Some(_)) => Out::DenseAndInt8,
            (out, _) => out,
        }
    }

    /// Names of its GEMMs, in order of computation.
    pub(crate) const LINEARS: [&str; 4] = ["qkv", "o", "gate_up", "down"];

    /// Returns its GEMMs in that order.
    pub(crate) fn linears(&self) -> [&Linear; 4] {
        [&self.qkv, &self.o, &self.gate_up, &self.down]
    }
}
