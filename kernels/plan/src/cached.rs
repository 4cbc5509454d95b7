//! A teacher that was computed before the run: the rows that are sent of it, one a token.

use precast_core::plan::{Builder, Tensor};
use precast_kernels::Dtype;

use crate::category;
use crate::config::ModelConfig;
use crate::head::{self, Head, Teaching};
use crate::ops::Ops;
use crate::parameters::Parameter;
use crate::predictions::{KnownTokens, TopTokens};
use crate::weights::{Linear, Matrix, Role, Weight};

/// The head of a teacher that is computed apart from its layers: of a model with tied weights its embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadWeights {
    /// Its matrix, `[vocab, hidden]`.
    pub parameter: Parameter,
    pub(crate) linear: Linear,
}

impl HeadWeights {
    pub(crate) fn declare(b: &mut Builder, name: &str, config: &ModelConfig, dtype: Dtype) -> Self {
        let parameter = Parameter::head(config);
        let tensor = b.persistent(name, category::TEACHER_WEIGHTS, dtype, config.head_elems());
        let weight = Matrix::Dense(Weight { tensor, role: Role::Frozen });
        let linear = Linear { weight, bias: None, n: config.logit_columns(), k: config.hidden, adapter: None };
        Self { parameter, linear }
    }

    /// Returns the head that reads these hidden states.
    pub(crate) fn of(&self, hidden: Tensor) -> Head<'_> {
        Head { linear: &self.linear, vocab: self.parameter.shape[0] as u32, hidden }
    }

    /// Returns the tensor that the matrix is sent to, dense; behind the vocabulary it is zero.
    pub fn tensor(&self) -> Tensor {
        self.linear.weight.dense()
    }

    /// Lowers the most likely tokens of hidden states, which the host reads: their ids, `[tokens, keep]` u32, and their
    /// log-probabilities, `[tokens, keep + 1]` f32.
    pub(crate) fn top(&self, ops: &mut Ops<'_>, hidden: Tensor, top: TopTokens) -> Vec<Tensor> {
        let results = head::top(ops, self.of(hidden), top);
        results.into_iter().for_each(|tensor| ops.read_back(tensor));
        results.to_vec()
    }
}

/// A cached teacher.
#[derive(Clone, Debug, PartialEq)]
pub enum CachedTeacher {
    /// Its last hidden states, and its head.
    Exact {
        /// Last hidden states of a micro-batch, normalized, `[tokens, hidden]`, in the dtype of activations. Rows of
        /// tokens that do not count are finite and otherwise arbitrary.
        hidden: Tensor,
        head: Box<HeadWeights>,
    },
    /// Probabilities of its most likely tokens.
    Compact(KnownTokens),
}

impl CachedTeacher {
    pub(crate) fn exact(b: &mut Builder, name: &str, config: &ModelConfig, tokens: u32, dtype: Dtype) -> Self {
        let head = Box::new(HeadWeights::declare(b, &format!("{name}.weights"), config, dtype));
        let elems = u64::from(tokens) * u64::from(config.hidden);
        let hidden = b.persistent(format!("{name}.hidden"), category::INPUTS, dtype, elems);
        Self::Exact { hidden, head }
    }

    pub(crate) fn compact(b: &mut Builder, name: &str, keep: u32, tokens: u32) -> Self {
        let mut rows = |part, dtype, width| {
            let elems = u64::from(tokens) * u64::from(width);
            b.persistent(format!("{name}.{part}"), category::INPUTS, dtype, elems)
        };
        let ids = rows("ids", Dtype::U32, keep);
        Self::Compact(KnownTokens { ids, log_probs: rows("log_probs", Dtype::F32, keep + 1), keep })
    }

    /// Returns the tensors that are sent before each micro-batch, each a row a token: side by side they are rows of the
    /// cache.
    pub fn inputs(&self) -> Vec<Tensor> {
        match self {
            Self::Exact { hidden, .. } => vec![*hidden],
            Self::Compact(KnownTokens { ids, log_probs, .. }) => vec![*ids, *log_probs],
        }
    }

    /// Returns the teacher's head, if it is on the device.
    pub fn head(&self) -> Option<&HeadWeights> {
        match self {
            Self::Exact { head, .. } => Some(head),
            Self::Compact(_) => None,
        }
    }

    pub(crate) fn teaching(&self) -> Teaching<'_> {
        match self {
            Self::Exact { hidden, head } => Teaching::Head(head.of(*hidden)),
            Self::Compact(known) => Teaching::Known(*known),
        }
    }
}
