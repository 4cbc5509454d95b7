//! Which variant a product is built as: a table of tiles for each architecture, and the time each would take.

use crate::{Arch, Dtype, Variant};

/// Token counts a plan is enumerated for. Which kernels a step launches does not depend on it, and the build takes
/// every variant that admits a launch, so two of them are plenty.
pub const TOKEN_BUCKETS: [u32; 2] = [1, 1 << 16];

/// Which of the products: their operands lie differently, so different tiles suit them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Fwd,
    Swiglu,
    Dgrad,
    Wgrad,
}

/// A result that one launch computes.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub form: Form,
    pub rows: u32,
    pub columns: u32,
    /// Dtype of the inputs.
    pub dtype: Dtype,
    /// Whether all rows of all operands are whole 16-byte vectors on 16-byte addresses.
    pub vectors: bool,
}

/// CUDA cores, any shape: 256 threads in a 16 x 16 grid, each with `tile / 16` squared sums.
macro_rules! cuda_cores {
    ($tile:literal) => {
        Variant(&[("threads", 256), ("tile", $tile)])
    };
}

/// Tensor cores by `mma.sync`: warps of 64 x `warp_n`, `stages` slices of `tile_k` in shared memory.
macro_rules! mma {
    ($tile_m:literal x $tile_n:literal x $tile_k:literal, warp_n $warp_n:literal, stages $stages:literal) => {
        Variant(&[
            ("mma", 1),
            ("stages", $stages),
            ("threads", $tile_m / 64 * ($tile_n / $warp_n) * 32),
            ("tile_k", $tile_k),
            ("tile_m", $tile_m),
            ("tile_n", $tile_n),
            ("warp_n", $warp_n),
        ])
    };
}

/// Tensor cores by `wgmma` and copies by tensor maps, clusters of as many blocks dividing the depth of what is left over.
macro_rules! wgmma {
    ($tile_m:literal x $tile_n:literal x $tile_k:literal, cluster $cluster:literal) => {
        Variant(&[
            ("cluster", $cluster),
            ("threads", ($tile_m / 64 + 1) * 128),
            ("tile_k", $tile_k),
            ("tile_m", $tile_m),
            ("tile_n", $tile_n),
            ("wgmma", 1),
        ])
    };
}

/// The variants an architecture has for inputs of a dtype, and how fast each multiplies when every multiprocessor is
/// full: a share of the fastest, in percent.
struct Table {
    multiprocessors: u64,
    variants: &'static [Variant],
    rates: &'static [u32],
}

static F32: &[Variant] = &[cuda_cores!(128), cuda_cores!(64)];

/// 96 and 48 KiB of shared memory a block: one or two of them on a multiprocessor that has 100 KiB.
static BF16: &[Variant] = &[
    mma!(128 x 256 x 32, warp_n 64, stages 4),
    mma!(128 x 128 x 32, warp_n 64, stages 3),
    mma!(128 x 64 x 32, warp_n 32, stages 4),
    cuda_cores!(64),
];

/// Outputs of many tokens: no tile is faster than another of these, so that which fits the columns and the waves is.
static HOPPER_FWD: &[Variant] = &[
    wgmma!(128 x 256 x 64, cluster 1),
    wgmma!(128 x 224 x 64, cluster 1),
    wgmma!(128 x 192 x 64, cluster 1),
    cuda_cores!(64),
];

/// The same, in halves of whole chunks of 32 columns.
static HOPPER_SWIGLU: &[Variant] =
    &[wgmma!(128 x 256 x 64, cluster 1), wgmma!(128 x 192 x 64, cluster 1), cuda_cores!(64)];

/// The same; the head's is few tiles, deep in the vocabulary.
static HOPPER_DGRAD: &[Variant] = &[
    wgmma!(128 x 256 x 64, cluster 2),
    wgmma!(128 x 224 x 64, cluster 2),
    wgmma!(128 x 192 x 64, cluster 2),
    cuda_cores!(64),
];

/// Weights: few tiles, deep in the tokens.
static HOPPER_WGRAD: &[Variant] = &[
    wgmma!(128 x 224 x 64, cluster 2),
    wgmma!(128 x 192 x 64, cluster 2),
    wgmma!(128 x 128 x 64, cluster 2),
    cuda_cores!(64),
];

/// Rates on an H200 are measured. The others have a quarter of its tensor throughput a multiprocessor: neither shared
/// memory nor L2 holds back their smaller tiles as much.
fn table(form: Form, dtype: Dtype, arch: Arch) -> Table {
    let multiprocessors = match arch {
        Arch::Sm89 | Arch::Sim => 128,
        Arch::Sm90a | Arch::Sm90 => 132,
        Arch::Sm121 => 48,
    };
    let (variants, rates): (_, &[u32]) = match (dtype, arch) {
        (Dtype::Bf16, Arch::Sm90a) => match form {
            Form::Fwd => (HOPPER_FWD, &[100, 100, 100, 3]),
            Form::Swiglu => (HOPPER_SWIGLU, &[100, 100, 3]),
            Form::Dgrad => (HOPPER_DGRAD, &[100, 100, 100, 3]),
            Form::Wgrad => (HOPPER_WGRAD, &[100, 100, 100, 3]),
        },
        (Dtype::Bf16, _) => (BF16, &[100, 100, 90, 3]),
        _ => (F32, &[100, 70]),
    };
    Table { multiprocessors, variants, rates }
}

pub(super) fn variants(form: Form, dtype: Dtype, arch: Arch) -> &'static [Variant] {
    table(form, dtype, arch).variants
}

/// bf16 runs on tensor cores wherever it can be copied in vectors.
pub(super) fn admits(product: &Product, variant: Variant) -> bool {
    product.dtype != Dtype::Bf16 || (variant.has("mma") || variant.has("wgmma")) == product.vectors
}

/// Rows and columns of a variant's tile of the result.
pub(super) fn tile(variant: Variant) -> (u32, u32) {
    if variant.has("tile") {
        (variant.get("tile"), variant.get("tile"))
    } else {
        (variant.get("tile_m"), variant.get("tile_n"))
    }
}

/// The variant that takes the least time, if every multiprocessor computes as many tiles as the busiest; those left over
/// by whole waves may be divided among clusters. The first of equals.
pub(super) fn select(product: &Product, arch: Arch) -> Variant {
    let Table { multiprocessors, variants, rates } = table(product.form, product.dtype, arch);
    let time = |(variant, rate): &(&Variant, &u32)| {
        let (m, n) = tile(**variant);
        let tiles = u64::from(product.rows.div_ceil(m)) * u64::from(product.columns.div_ceil(n));
        let cluster = if variant.has("cluster") { u64::from(variant.get("cluster")) } else { 1 };
        let (waves, rest) = (tiles / multiprocessors, tiles % multiprocessors);
        let rounds = rest.div_ceil(multiprocessors / cluster).min(cluster); // each a part of a wave
        (waves * cluster + rounds) * u64::from(m * n) * 1000 / cluster / u64::from(**rate)
    };
    let admitted = variants.iter().zip(rates).filter(|(variant, _)| admits(product, **variant));
    *admitted.min_by_key(time).expect("every product has a variant that admits it").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_fit_the_waves_of_an_h200() {
        let width = |form, (rows, columns)| {
            let product = Product { form, rows, columns, dtype: Dtype::Bf16, vectors: true };
            select(&product, Arch::Sm90a).get("tile_n")
        };
        // Outputs of 8192 tokens: student's qkv, o and down, gate and up; teacher's qkv.
        assert_eq!([1152, 896, 9728, 2048].map(|n| width(Form::Fwd, (8192, n))), [192, 224, 192, 256]);
        // Weights: student's qkv, o, gate and up, down, head.
        let weights = [(1152, 896), (896, 896), (9728, 896), (896, 4864), (151_936, 896)];
        assert_eq!(weights.map(|shape| width(Form::Wgrad, shape)), [128, 128, 224, 192, 224]);
    }
}
