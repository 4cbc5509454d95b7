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
use crate::kernel::{Content, Geometry, Kernel, Operand, Tolerance};
use crate::source::Source;
use crate::{Arch, Dtype, Format, Variant, key, operand, source};

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

const ROW: &[Variant] = &[Variant(&[("threads", 512)])];

/// A block reads both rows of a token twice.
const BLOCK: Variant = Variant(&[("cluster", 1), ("threads", 1024)]);
/// A cluster keeps them in shared memory between the walks, `blocks` of its blocks beside each other.
const CLUSTER: Variant = Variant(&[("blocks", 3), ("cluster", 8), ("threads", 352)]);
/// Tokens a cluster walks when there are many.
const ROWS: u32 = 4;
/// Most shared memory for a block's share of the rows: two blocks find room beside each other. With Qwen2.5's vocabulary
/// three do, and one's exponentials are behind another's copies.
const KEPT_BYTES: u32 = 108 * 1024;
const METRICS: &[Variant] = &[Variant(&[("threads", 1024)])];

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
    fn kept_bytes(&self, variant: Variant, vocab: u32) -> u32 {
        match (variant.get("cluster"), self.x.vector_width(vocab)) {
            (1, _) | (_, 1) => 0,
            (cluster, width) => 2 * 16 * (vocab / width).div_ceil(cluster),
        }
    }
}

impl Kernel for HeadDistill {
    type Params = head_distill_params;
    const SOURCE: Source = source!("head", "distill.cu");

    fn variants(&self, arch: Arch) -> &'static [Variant] {
        if arch == Arch::Sm90a { &[CLUSTER, BLOCK] } else { &[BLOCK] }
    }

    fn select(&self, p: &Self::Params, arch: Arch) -> Variant {
        // Rows that are not aligned cannot be copied in whole vectors.
        let fits = 1..=KEPT_BYTES;
        if arch == Arch::Sm90a && fits.contains(&self.kept_bytes(CLUSTER, p.vocab)) { CLUSTER } else { BLOCK }
    }

    fn geometry(&self, variant: Variant, p: &Self::Params) -> Geometry {
        let cluster = variant.get("cluster");
        // In a cluster that walks many tokens, fetching one is behind the work on another; few tokens get one each.
        let groups = if cluster > 1 { p.tokens.div_ceil(ROWS).max(p.tokens.min(32)) } else { p.tokens };
        let blocks = groups * cluster;
        Geometry { shared_bytes: self.kept_bytes(variant, p.vocab), ..Geometry::linear(blocks, variant.threads()) }
    }

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
    const SOURCE: Source = source!("head", "nll.cu");

    fn variants(&self, _arch: Arch) -> &'static [Variant] {
        ROW
    }

    fn geometry(&self, variant: Variant, p: &Self::Params) -> Geometry {
        Geometry::linear(p.tokens, variant.threads())
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, logits: self.x, area(p.tokens, p.vocab)),
            operand!(Read Self::Params, targets: Dtype::U32, p.tokens).with(Content::Targets(p.vocab)),
            operand!(Write Self::Params, nll: Dtype::F32, p.tokens),
        ]
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
    const SOURCE: Source = source!("head", "metrics.cu");

    fn variants(&self, _arch: Arch) -> &'static [Variant] {
        METRICS
    }

    fn geometry(&self, variant: Variant, _p: &Self::Params) -> Geometry {
        Geometry::linear(1, variant.threads())
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, kd: Dtype::F32, p.tokens),
            operand!(Read Self::Params, ce: Dtype::F32, p.tokens),
            operand!(Read Self::Params, micro: Dtype::U32, 2).with(Content::Micro),
            operand!(ReadWrite Self::Params, metrics: Dtype::F32, 6).with(Content::Metrics),
        ]
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
