//! Recipe of a run: the part of its configuration that determines the plan.

use std::fmt;
use std::str::FromStr;

use precast_kernels::{Dtype, Moments};
use serde::Serialize;

use crate::config::ModelConfig;
use crate::gemm::Gemm;
use crate::objective::Objective;
use crate::sequences::Shape;
use crate::share::ShareError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// f32 throughout, no TF32.
    Fp32,
    /// bf16 weights and activations; fp32 master weights, sums and statistics.
    Bf16,
    /// Like bf16, except that the inputs of the student's layers' GEMMs, forward and for gradients of inputs, are
    /// rotated and quantized to 8 bits.
    Int8,
}

impl Precision {
    pub const ALL: [Precision; 3] = [Precision::Fp32, Precision::Bf16, Precision::Int8];

    pub fn dtype(self) -> Dtype {
        match self {
            Precision::Fp32 => Dtype::F32,
            Precision::Bf16 | Precision::Int8 => Dtype::Bf16,
        }
    }

    /// Returns the precision of a run's models that do not train, which is that of its activations.
    pub fn exact(self) -> Self {
        match self {
            Precision::Fp32 => Precision::Fp32,
            Precision::Bf16 | Precision::Int8 => Precision::Bf16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|precision| precision.to_string() == text)
            .ok_or_else(|| format!("unknown precision `{text}`: fp32, bf16 or int8"))
    }
}

/// Activations that the backward pass recomputes instead of keeping: the same bits in less memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Recompute {
    #[default]
    None,
    /// Outputs of norms and of SwiGLU: each takes one pass over memory.
    Norms,
    /// All of a block but its last GEMM: only the residual stream into each block is kept.
    Blocks,
}

impl Recompute {
    /// Every choice, in decreasing order of memory.
    pub const ALL: [Recompute; 3] = [Recompute::None, Recompute::Norms, Recompute::Blocks];
}

impl fmt::Display for Recompute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for Recompute {
    type Err = String;

    /// Parses a name; `true` is `norms` and `false` is `none`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "true" => Ok(Recompute::Norms),
            "false" => Ok(Recompute::None),
            name => Self::ALL
                .into_iter()
                .find(|choice| choice.to_string() == name)
                .ok_or_else(|| format!("unknown recompute `{name}`: none, norms or blocks")),
        }
    }
}

/// Inputs of a training plan besides the models.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Sequences in a micro-batch, if they are full.
    pub batch: u32,
    /// Tokens in a sequence, at most.
    pub seq_len: u32,
    /// True if rows of any length lie end to end in as many places.
    pub packed: bool,
    /// True if the teacher reads sequences of its own, of which the student's tokens that count are a part.
    pub own_prompts: bool,
    pub precision: Precision,
    /// Loss to minimize.
    pub objective: Objective,
    /// AdamW's decay of matrices.
    pub weight_decay: f32,
    /// Largest gradient norm; 0 for none.
    pub clip: f32,
    pub recompute: Recompute,
    /// Executor of GEMMs.
    pub gemm: Gemm,
    /// Format of AdamW's moments.
    pub moments: Moments,
}

impl Recipe {
    /// AdamW's decay of the first moment.
    pub const BETA1: f32 = 0.9;
    /// AdamW's decay of the second moment.
    pub const BETA2: f32 = 0.999;
    pub const EPS: f32 = 1e-8;

    /// Most tokens of a micro-batch.
    pub const MOST_TOKENS: u64 = 1 << 22;

    /// A token of cross entropy in fp32, its gradient as it is: others differ from it.
    pub const PLAIN: Self = Self {
        batch: 1,
        seq_len: 1,
        packed: false,
        own_prompts: false,
        precision: Precision::Fp32,
        objective: Objective::CrossEntropy,
        weight_decay: 0.0,
        clip: 0.0,
        recompute: Recompute::None,
        gemm: Gemm::Bundle,
        moments: Moments::Fp32,
    };

    /// Returns a recipe of each kind that flags can reach, for micro-batches of one sequence. The kernels of a run
    /// depend on nothing else of its recipe: numbers are arguments, cuBLASLt only removes kernels, and of the moments'
    /// format AdamW's alone depends.
    pub fn every(seq_len: u32) -> impl Iterator<Item = Self> {
        let choices = Objective::EVERY.into_iter().flat_map(|objective| {
            let precisions = Precision::ALL.into_iter();
            precisions.flat_map(move |precision| Recompute::ALL.map(|recompute| (objective, precision, recompute)))
        });
        choices.map(move |(objective, precision, recompute)| Self {
            seq_len,
            precision,
            objective,
            recompute,
            ..Self::PLAIN
        })
    }

    /// True if two recipes are of one kind.
    pub fn is_like(&self, other: &Self) -> bool {
        let choices = |recipe: &Self| (recipe.precision, recipe.recompute);
        choices(self) == choices(other) && self.objective.is_like(other.objective)
    }

    pub fn tokens(&self) -> u32 {
        self.batch * self.seq_len
    }

    /// Shape of a micro-batch.
    pub fn shape(&self) -> Shape {
        let shape = if self.packed { Shape::packed } else { Shape::full };
        shape(self.batch, self.seq_len)
    }
}

/// A run that cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The sequence is longer than the model supports.
    #[error("sequences of {seq_len} tokens are longer than the {role}'s {bound} {max_positions}")]
    SequenceTooLong {
        /// `teacher`, `student` or `model`.
        role: &'static str,
        seq_len: u32,
        /// Field of config.json.
        bound: &'static str,
        max_positions: u32,
    },
    /// The teacher has no logits for some of the student's tokens.
    #[error(
        "the teacher's vocabulary ({teacher}) is narrower than the student's ({student}): \
         choose a teacher that knows every token of the student"
    )]
    TeacherNarrower {
        /// Rows of the teacher's embedding.
        teacher: u32,
        /// Rows of the student's embedding.
        student: u32,
    },
    /// No kernel computes the adapter's rank.
    #[error("the adapter of {name} has rank {rank}: use a rank between 1 and 256")]
    Rank {
        /// Hugging Face name of the adapted matrix.
        name: String,
        rank: u32,
    },
    /// The adapted matrix is no projection of a layer.
    #[error("the adapter of {name} goes with no projection of this model: it was made for another one")]
    UnknownProjection {
        /// Hugging Face name of the matrix.
        name: String,
    },
    /// A student, or the base of adapters, has experts.
    #[error("experts do not train, and carry no adapters: a model with experts teaches, and is evaluated")]
    Experts,
    /// The student is stored in blocks and has no adapters to train.
    #[error("weights that train cannot stay in the blocks of their file, and this student has no adapters")]
    StoredWithoutAdapters,
    /// A matrix of a student that trains for blocks is in none.
    #[error(
        "{name} has rows of {columns} elements, which are no whole blocks of 32: this model cannot train for a file in \
         blocks"
    )]
    Rounded { name: String, columns: u64 },
    /// Int8 GEMMs in a run that computes in fp32.
    #[error("int8 GEMMs give bf16, and cannot be combined with fp32")]
    Int8Precision,
    /// An int8 GEMM's rows are too wide to quantize.
    #[error(
        "int8 quantizes rows in a CTA's registers, which suffice up to a depth of {}, and {module} sums over \
        {depth}, forward or for the \
         gradient of its input: use bf16 in place of int8",
        precast_kernels::int8::MOST_DEPTH
    )]
    Int8Depth {
        /// The first matrix of that depth.
        module: String,
        depth: u32,
    },
    /// A student's int8 GEMM has a depth without a rotation.
    #[error(
        "int8 rotates what a GEMM sums over in blocks of 16 to 128 elements, and {result} of {module} sums over \
        {depth}: the largest \
         power of two that divides it is {block}"
    )]
    StudentRotation {
        /// `the output`, or `the gradient of the input`.
        result: &'static str,
        /// The first matrix of that depth.
        module: String,
        depth: u32,
        /// The largest power of two that divides it.
        block: u32,
    },
    /// A student in blocks cannot have 8-bit GEMMs.
    #[error("a student in int8 cannot stay in the blocks of its file: its matrices are quantized to 8 bits")]
    StoredInt8,
    /// An int8 GEMM has a depth without a rotation.
    #[error(
        "int8 rotates what a GEMM sums over in blocks of 16 to 128 elements, and {module} sums over {depth}: the \
        largest power \
         of two that divides it is {block}. Use weights in bf16, or stored"
    )]
    Rotation {
        /// The first matrix of that depth.
        module: String,
        /// Columns of that matrix.
        depth: u32,
        /// The largest power of two that divides the depth.
        block: u32,
    },
    /// The student's base would teach while it trains.
    #[error("a base that trains cannot teach its student")]
    BaseWithoutAdapters,
    /// More tokens are to be kept of a position than there are, or than kernels keep.
    #[error("{keep} probabilities a token are not between 1 and {most}, the most that are kept of this vocabulary")]
    Keep { keep: u32, most: u32 },
    /// The objective needs a teacher and there is none.
    #[error("the objective needs a teacher")]
    NoTeacher,
    /// No tokens, or more than an index can count.
    #[error("{batch} sequences of {seq_len} tokens are not between 1 and 2^22 tokens")]
    Tokens {
        /// Sequences in a micro-batch.
        batch: u32,
        seq_len: u32,
    },
    /// Tokens are not drawn from so many.
    #[error("tokens are drawn from a vocabulary of at most {most}, and the model's has {vocab}")]
    Vocabulary {
        /// Rows of the model's head.
        vocab: u32,
        most: u32,
    },
    /// Layers of the gated delta rule in a plan that has none.
    #[error("layers of the gated delta rule {reason}")]
    DeltaRule {
        /// `are not computed in int8: use bf16`
        reason: &'static str,
    },
    /// The replicas' tree cannot be divided among the ranks.
    #[error(transparent)]
    Replicas(#[from] ShareError),
    /// More memory than a plan can address.
    #[error("this run would take more than {gib} GiB, and no plan takes 1024: check the models' config.json")]
    TooLarge {
        /// Size of its largest parts.
        gib: u64,
    },
}

/// Checks the sequence length and token count of a run against a model.
pub(crate) fn check_tokens(
    config: &ModelConfig,
    role: &'static str,
    batch: u32,
    seq_len: u32,
) -> Result<(), PlanError> {
    if seq_len > config.max_positions {
        let (bound, max_positions) = (config.bound(), config.max_positions);
        return Err(PlanError::SequenceTooLong { role, seq_len, bound, max_positions });
    }
    match u64::from(batch) * u64::from(seq_len) {
        1..=Recipe::MOST_TOKENS => Ok(()),
        _ => Err(PlanError::Tokens { batch, seq_len }),
    }
}
