//! A teacher whose last hidden states were computed before the run.

use precast_core::plan::{Builder, Tensor};
use precast_kernels::Dtype;

use crate::category;
use crate::config::ModelConfig;
use crate::parameters::Parameter;
use crate::weights::{Linear, Matrix, Role, Weight};

/// The head of a cached teacher, and the input that its hidden states are sent to.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedTeacher {
    /// Last hidden states of a micro-batch, normalized, `[tokens, hidden]`, in the dtype of activations. Rows of tokens that do not
    /// count are finite and otherwise arbitrary.
    pub hidden: Tensor,
    /// The matrix of the head, `[vocab, hidden]`: of a model with tied weights its embedding.
    pub parameter: Parameter,
    pub(crate) head: Linear,
}

impl CachedTeacher {
    pub(crate) fn declare(b: &mut Builder, config: &ModelConfig, tokens: u32, dtype: Dtype) -> Self {
        let parameter = Parameter::head(config);
        let tensor = b.persistent("teacher.weights", category::TEACHER_WEIGHTS, dtype, parameter.elems());
        let weight = Matrix::Dense(Weight { tensor, role: Role::Frozen });
        let head = Linear { weight, bias: None, n: config.vocab, k: config.hidden, adapter: None };
        let elems = u64::from(tokens) * u64::from(config.hidden);
        let hidden = b.persistent("teacher.hidden", category::INPUTS, dtype, elems);
        Self { hidden, parameter, head }
    }

    /// Returns the tensor that the head's matrix is sent to.
    pub fn weights(&self) -> Tensor {
        self.head.weight.dense()
    }
}
