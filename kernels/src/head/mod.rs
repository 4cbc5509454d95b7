//! The distillation head: losses and the logits' gradient, a chunk of tokens at a time.
//!
//! `kd = KL(softmax(t / T) || softmax(s / T))` and `ce = -log softmax(s)[target]` of each counted token.
//! With `loss = alpha T^2 kd + (1 - alpha) ce` and a scale for the mean, the student's logits are replaced by
//! `loss_scale * (alpha T (softmax(s / T) - softmax(t / T)) + (1 - alpha) (softmax(s) - onehot(target)))`.
//! Masked tokens get zero loss and zero gradient.
//!
//! | operand | shape | dtype |
//! | --- | --- | --- |
//! | `student`, `teacher`, `logits` | tokens x vocab | x |
//! | `targets` | tokens | u32 |
//! | `kd`, `ce`, `nll` | tokens | f32 |
//!
//! Forward KL keeps the teacher's entropy, so it is >= 0 and exactly 0 when both rows of logits are the same
//! bits: both log-sum-exps are then the same sums in the same order. A teacher with a wider vocabulary never
//! gets here: its head product computes the student's columns only.
//! Source: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015.

mod host;

use crate::abi::{head_distill_params, head_metrics_params, head_nll_params};
use crate::host::Views;
use crate::{
    Arch, Build, Content, Dtype, Fixed, Format, Geometry, Kernel, Operand, Reference, Source, Threads, Tolerance, key,
    operand, source, variant,
};

key! {
    /// Losses of a chunk, and the gradient of its student logits in place.
    pub struct HeadDistill = "head.distill" { x: Dtype }
}

key! {
    /// Negative log likelihood of a chunk.
    pub struct HeadNll = "head.nll" { x: Dtype }
}

key! {
    /// Mean losses of a micro-batch, added up over the step.
    pub struct HeadMetrics = "head.metrics" {}
}

variant! {
    /// A block reads both rows of a token twice.
    pub struct Block {
        /// Blocks of a cluster.
        cluster: Fixed<1>,
        /// Threads of a block.
        threads: u32,
    }
}

variant! {
    /// A cluster keeps both rows in shared memory between the walks.
    pub struct Cluster {
        /// Blocks of a multiprocessor, beside each other.
        blocks: u32,
        /// Blocks of a cluster.
        cluster: u32,
        /// Threads of a block.
        threads: u32,
    }
}

variant! {
    /// Who walks the rows of a token.
    pub enum Walkers {
        /// One block.
        Block,
        /// The blocks of a cluster.
        Cluster,
    }
}

const BLOCK: Block = Block { cluster: Fixed, threads: 1024 };
const CLUSTER: Cluster = Cluster { blocks: 3, cluster: 8, threads: 352 };
/// Tokens a cluster walks when there are many.
const ROWS: u32 = 4;
/// Most shared memory for a block's share of the rows: two blocks find room beside each other. With Qwen2.5's vocabulary
/// three do, and one's exponentials are behind another's copies.
const KEPT_BYTES: u32 = 108 * 1024;

/// Small and ragged (tokens, vocab).
const SAMPLES: [(u32, u32); 3] = [(1, 1), (7, 701), (3, 2048)];

fn area(tokens: u32, vocab: u32) -> u64 {
    u64::from(tokens) * u64::from(vocab)
}

/// Losses are differences of log-sum-exps: their rounding follows the logits, not the loss.
fn tolerance(operand: &Operand) -> Tolerance {
    match operand.format {
        Format::Dense(Dtype::F32) => Tolerance { norm: 1e-5, element: 2e-5, absolute: 1e-6 },
        format => Tolerance::of(format),
    }
}

impl HeadDistill {
    /// Shared memory of a block that keeps its share of both rows, in whole vectors of 16 bytes; 0 if none does.
    fn kept_bytes(&self, cluster: Cluster, vocab: u32) -> u32 {
        match self.x.vector_width(vocab) {
            1 => 0,
            width => 2 * 16 * (vocab / width).div_ceil(cluster.cluster),
        }
    }
}

impl Kernel for HeadDistill {
    type Params = head_distill_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let logits = area(p.tokens, p.vocab);
        vec![
            operand!(Read Self::Params, teacher: self.x, logits),
            operand!(ReadWrite Self::Params, student: self.x, logits),
            operand!(Read Self::Params, targets: Dtype::U32, p.tokens).with(Content::Targets(p.vocab)),
            operand!(Read Self::Params, micro: Dtype::U32, 2).with(Content::Micro),
            operand!(Write Self::Params, kd: Dtype::F32, p.tokens),
            operand!(Write Self::Params, ce: Dtype::F32, p.tokens),
        ]
    }
}

impl Build for HeadDistill {
    type Variant = Walkers;

    fn variants(&self, arch: Arch) -> Vec<Walkers> {
        let block = Walkers::Block(BLOCK);
        if arch == Arch::Sm90a { vec![Walkers::Cluster(CLUSTER), block] } else { vec![block] }
    }

    fn source(&self, _variant: Walkers) -> Source {
        source!("head", "distill.cu")
    }

    fn select(&self, p: &Self::Params, arch: Arch) -> Walkers {
        // Rows that are not aligned cannot be copied in whole vectors.
        let fits = (1..=KEPT_BYTES).contains(&self.kept_bytes(CLUSTER, p.vocab));
        if arch == Arch::Sm90a && fits { Walkers::Cluster(CLUSTER) } else { Walkers::Block(BLOCK) }
    }

    fn geometry(&self, variant: Walkers, p: &Self::Params) -> Geometry {
        match variant {
            Walkers::Block(block) => Geometry::linear(p.tokens, block.threads),
            Walkers::Cluster(cluster) => {
                // In a cluster that walks many tokens, fetching one is behind the work on another; few get one each.
                let groups = p.tokens.div_ceil(ROWS).max(p.tokens.min(32));
                let linear = Geometry::linear(groups * cluster.cluster, cluster.threads);
                Geometry { shared_bytes: self.kept_bytes(cluster, p.vocab), ..linear }
            }
        }
    }
}

impl Reference for HeadDistill {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::distill(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let sample = |(tokens, vocab), alpha, temperature| Self::Params {
            tokens,
            vocab,
            alpha,
            temperature,
            ..Default::default()
        };
        let small = SAMPLES.into_iter().flat_map(|shape| [sample(shape, 0.5, 2.0), sample(shape, 1.0, 1.0)]);
        // More tokens than clusters; more than one vector a thread.
        small.chain([sample((40, 1096), 0.0, 1.5), sample((2, 33_000), 0.3, 1.5)]).collect()
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Kernel for HeadNll {
    type Params = head_nll_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, logits: self.x, area(p.tokens, p.vocab)),
            operand!(Read Self::Params, targets: Dtype::U32, p.tokens).with(Content::Targets(p.vocab)),
            operand!(Write Self::Params, nll: Dtype::F32, p.tokens),
        ]
    }
}

impl Build for HeadNll {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 512 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("head", "nll.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens, variant.threads)
    }
}

impl Reference for HeadNll {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::nll(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        SAMPLES.map(|(tokens, vocab)| Self::Params { tokens, vocab, ..Default::default() }).into()
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Kernel for HeadMetrics {
    type Params = head_metrics_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, kd: Dtype::F32, p.tokens),
            operand!(Read Self::Params, ce: Dtype::F32, p.tokens),
            operand!(Read Self::Params, micro: Dtype::U32, 2).with(Content::Micro),
            operand!(ReadWrite Self::Params, metrics: Dtype::F32, 6).with(Content::Metrics),
        ]
    }
}

impl Build for HeadMetrics {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 1024 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("head", "metrics.cu")
    }

    fn geometry(&self, variant: Threads, _p: &Self::Params) -> Geometry {
        Geometry::linear(1, variant.threads)
    }
}

impl Reference for HeadMetrics {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::metrics(views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 3001].map(|tokens| Self::Params { tokens, ..Default::default() }).into()
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}
