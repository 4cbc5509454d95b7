//! The head of a model that trains: losses and the logits' gradient, a chunk of tokens at a time.
//!
//! `ce = -log softmax(s)[target]` of each counted token, and with a teacher `kd`, a divergence of the softmaxes at
//! temperature T, q of the student and p of the teacher. With `loss = alpha T^2 kd + (1 - alpha) ce` and a scale for
//! the mean, the student's logits are replaced by `loss_scale * (alpha T g + (1 - alpha) (softmax(s) -
//! onehot(target)))`:
//!
//! | kernel | `kd` | `g` |
//! | --- | --- | --- |
//! | `head.distill{reverse=false}` | `KL(p || q)` | `q - p` |
//! | `head.distill{reverse=true}` | `KL(q || p)` | `q (log(q / p) - KL(q || p))` |
//! | `head.jsd` | `beta KL(p || m) + (1 - beta) KL(q || m)`, `m = beta p + (1 - beta) q` | `(1 - beta) q (log(q / m) - KL(q || m))` |
//! | `head.topk` | those above over the outcomes `i` of a few tokens and of all others as one, by `beta` | `q_j / q_i` times that of `j`'s outcome `i` |
//! | `head.ce` | none: alpha is 0 | |
//!
//! Masked tokens get zero loss and zero gradient.
//!
//! `head.compare` trains nothing: it compares two models' predictions, per token.
//!
//! Every divergence is >= 0 and, like its gradient, exactly 0 when both rows of logits have the same bits: both
//! log-sum-exps are then the same sums in the same order. A wider teacher is cut before: its head GEMM computes the
//! student's columns only. Sources: Hinton et al., "Distilling the Knowledge in a Neural Network", 2015; Agarwal et
//! al., "On-Policy Distillation of Language Models" (generalized Jensen-Shannon divergence), 2024.

mod host;
mod topk;

pub use crate::abi::{HeadCe, HeadCompare, HeadDistill, HeadJsd, HeadMetrics, HeadNll, HeadTopk};
use crate::host::Views;
use crate::{
    Arch, Batch, Build, Dtype, Fixed, Format, Geometry, Operand, Reference, Source, Threads, Tolerance, one_variant,
    source, variant,
};

/// Logit of a column that is no token: its softmax and its gradient are exactly 0 at any temperature, and differences
/// of such logits are finite. A number of bf16.
pub const MASKED_LOGIT: f32 = -((1u128 << 80) as f32);

variant! {
    /// A CTA reads the rows of a token in each pass.
    pub struct SingleCta {
        /// CTAs per cluster.
        cluster: Fixed<1>,
        threads: u32,
    }
}

variant! {
    /// A cluster keeps the rows in shared memory between the passes.
    pub struct Cluster {
        /// CTAs per multiprocessor.
        blocks: u32,
        /// CTAs per cluster.
        cluster: u32,
        threads: u32,
    }
}

variant! {
    /// Owner of the rows of a token: a CTA or a cluster.
    pub enum Walkers {
        SingleCta,
        /// The CTAs of a cluster.
        Cluster,
    }
}

const SINGLE_CTA: SingleCta = SingleCta { cluster: Fixed, threads: 1024 };
const CLUSTER: Cluster = Cluster { blocks: 3, cluster: 8, threads: 352 };
/// Enough threads for the registers that the mixture takes.
const JSD_CLUSTER: Cluster = Cluster { threads: 320, ..CLUSTER };
/// With one row to keep, more CTAs fit a multiprocessor: one's copies and exponentials hide another's.
const CE_CLUSTER: Cluster = Cluster { blocks: 4, cluster: 8, threads: 416 };
/// Tokens per cluster, if there are many.
const ROWS: u32 = 4;
/// Most shared memory for a CTA's share of the rows: two CTAs fit a multiprocessor. With Qwen2.5's vocabulary three do,
/// and one's exponentials hide another's copies.
const KEPT_BYTES: u32 = 108 * 1024;

/// Small and ragged (tokens, vocab).
const SAMPLES: [(u32, u32); 3] = [(1, 1), (7, 701), (3, 2048)];

/// Returns the tokens whose logits exist at a time: a step takes them in chunks.
fn chunk(batch: Batch) -> u32 {
    batch.tokens().div_ceil(4)
}

/// Losses are differences of log-sum-exps: their rounding scales with the logits, not the loss.
fn tolerance(operand: &Operand) -> Tolerance {
    match operand.format {
        Format::Dense(Dtype::F32) => Tolerance { norm: 1e-5, element: 2e-5, absolute: 1e-6 },
        format => Tolerance::of(format),
    }
}

/// Rows of a token that a cluster keeps.
struct ClusterRows {
    x: Dtype,
    rows: u32,
    vocab: u32,
}

impl ClusterRows {
    /// Returns the shared memory of a CTA for its share, bytes, in whole vectors of 16; 0 if the rows are not aligned
    /// and so cannot be copied.
    fn kept_bytes(&self, cluster: Cluster) -> u32 {
        match self.x.vector_width(self.vocab) {
            1 => 0,
            width => self.rows * 16 * (self.vocab / width).div_ceil(cluster.cluster),
        }
    }

    /// Returns a cluster if the architecture has them and each CTA's share fits; else a CTA.
    fn select(&self, cluster: Cluster, arch: Arch) -> Walkers {
        let fits = (1..=KEPT_BYTES).contains(&self.kept_bytes(cluster));
        if arch == Arch::Sm90a && fits { Walkers::Cluster(cluster) } else { Walkers::SingleCta(SINGLE_CTA) }
    }

    fn geometry(&self, variant: Walkers, tokens: u32) -> Geometry {
        match variant {
            Walkers::SingleCta(block) => Geometry::linear(tokens, block.threads),
            Walkers::Cluster(cluster) => {
                // With many tokens per cluster, fetching one hides behind the work on another; few tokens get a cluster
                // each.
                let groups = tokens.div_ceil(ROWS).max(tokens.min(32));
                let linear = Geometry::linear(groups * cluster.cluster, cluster.threads);
                Geometry { shared_bytes: self.kept_bytes(cluster), ..linear }
            }
        }
    }
}

fn walkers(cluster: Cluster, arch: Arch) -> Vec<Walkers> {
    let block = Walkers::SingleCta(SINGLE_CTA);
    if arch == Arch::Sm90a { vec![Walkers::Cluster(cluster), block] } else { vec![block] }
}

/// Returns (tokens, vocab), alpha and temperature: ragged; more tokens than clusters; more than one vector per thread.
fn taught_samples() -> impl Iterator<Item = ((u32, u32), f32, f32)> {
    let small = SAMPLES.into_iter().flat_map(|shape| [(shape, 0.5, 2.0), (shape, 1.0, 1.0)]);
    small.chain([((40, 1096), 0.0, 1.5), ((2, 33_000), 0.3, 1.5)])
}

impl Build for HeadCe {
    type Variant = Walkers;

    fn variants(&self, arch: Arch) -> Vec<Walkers> {
        walkers(CE_CLUSTER, arch)
    }

    fn source(&self, _variant: Walkers) -> Source {
        source!("head", "ce.cu", "reduce.cuh")
    }

    fn select(&self, p: &Self::Params, arch: Arch) -> Walkers {
        ClusterRows { x: self.x, rows: 1, vocab: p.vocab }.select(CE_CLUSTER, arch)
    }

    fn geometry(&self, variant: Walkers, p: &Self::Params) -> Geometry {
        ClusterRows { x: self.x, rows: 1, vocab: p.vocab }.geometry(variant, p.tokens)
    }
}

impl Reference for HeadCe {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::ce(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let shapes = SAMPLES.into_iter().chain([(40, 1096), (2, 33_000)]);
        shapes.map(|(tokens, vocab)| Self::Params { tokens, vocab, ..Default::default() }).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: chunk(batch), vocab: Batch::VOCAB, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for HeadDistill {
    type Variant = Walkers;

    fn variants(&self, arch: Arch) -> Vec<Walkers> {
        walkers(CLUSTER, arch)
    }

    fn source(&self, _variant: Walkers) -> Source {
        source!("head", "distill.cu", "distill.cuh", "reduce.cuh")
    }

    fn select(&self, p: &Self::Params, arch: Arch) -> Walkers {
        ClusterRows { x: self.x, rows: 2, vocab: p.vocab }.select(CLUSTER, arch)
    }

    fn geometry(&self, variant: Walkers, p: &Self::Params) -> Geometry {
        ClusterRows { x: self.x, rows: 2, vocab: p.vocab }.geometry(variant, p.tokens)
    }
}

impl Reference for HeadDistill {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].into_iter().flat_map(|x| [false, true].map(|reverse| Self { reverse, x })).collect()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::distill(self, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let sample = |((tokens, vocab), alpha, temperature)| Self::Params {
            tokens,
            vocab,
            alpha,
            temperature,
            ..Default::default()
        };
        taught_samples().map(sample).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: chunk(batch), vocab: Batch::VOCAB, ..self.samples()[0] }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for HeadJsd {
    type Variant = Walkers;

    fn variants(&self, arch: Arch) -> Vec<Walkers> {
        walkers(JSD_CLUSTER, arch)
    }

    fn source(&self, _variant: Walkers) -> Source {
        source!("head", "jsd.cu", "distill.cuh", "reduce.cuh")
    }

    fn select(&self, p: &Self::Params, arch: Arch) -> Walkers {
        ClusterRows { x: self.x, rows: 2, vocab: p.vocab }.select(JSD_CLUSTER, arch)
    }

    fn geometry(&self, variant: Walkers, p: &Self::Params) -> Geometry {
        ClusterRows { x: self.x, rows: 2, vocab: p.vocab }.geometry(variant, p.tokens)
    }
}

impl Reference for HeadJsd {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::jsd(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let sample = |(((tokens, vocab), alpha, temperature), beta)| Self::Params {
            tokens,
            vocab,
            alpha,
            temperature,
            beta,
            ..Default::default()
        };
        taught_samples().zip([0.5, 0.1, 0.9].into_iter().cycle()).map(sample).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: chunk(batch), vocab: Batch::VOCAB, ..self.samples()[0] }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for HeadNll {
    one_variant!(Threads { threads: 512 });

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

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: chunk(batch), vocab: Batch::VOCAB, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for HeadCompare {
    one_variant!(Threads { threads: 512 });

    fn source(&self, _variant: Threads) -> Source {
        source!("head", "compare.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens, variant.threads)
    }
}

impl Reference for HeadCompare {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::compare(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        let shapes = SAMPLES.into_iter().chain([(2, 33_000)]);
        shapes.map(|(tokens, vocab)| Self::Params { tokens, vocab, ..Default::default() }).collect()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: chunk(batch), vocab: Batch::VOCAB, ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}

impl Build for HeadMetrics {
    one_variant!(Threads { threads: 1024 });

    fn source(&self, _variant: Threads) -> Source {
        source!("head", "metrics.cu")
    }

    fn geometry(&self, variant: Threads, _p: &Self::Params) -> Geometry {
        Geometry::linear(1, variant.threads)
    }
}

impl Reference for HeadMetrics {
    fn examples() -> Vec<Self> {
        [false, true].map(|kd| Self { kd }).into()
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::metrics(self, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 3001].map(|tokens| Self::Params { tokens, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), ..Default::default() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        tolerance(operand)
    }
}
