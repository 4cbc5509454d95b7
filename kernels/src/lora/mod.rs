//! Low-rank adapters of the projections that one GEMM computes: q, k and v; o; gate and up; down.
//!
//! Each adapted part p of a stack adds `scale_p B_p (A_p x)` to its columns of `y = x W^T`, with A `[rank, k]` and B
//! `[width_p, rank]`. All parts have one rank, which is padded with zeros: padding stays 0 and gets gradients of
//! exactly 0.
//!
//! - `lora.fwd_a`: `t_p = scale_p x A_p^T`
//! - `lora.fwd_b`: `y_p += t_p B_p^T`
//! - `lora.dgrad_b`: `dt_p = scale_p dy_p B_p`
//! - `lora.dgrad_a`: `dx += dt A`
//! - `lora.wgrad`: `dw_p (+)= dy_p^T x_p`, f32, or partial sums of it
//!
//! `t` and `dt` carry the scale, so that `lora.wgrad` gives both gradients: `dB_p = dy_p^T t_p`, and `dA = dt^T x` as
//! of one part. Sums are f32 and are rounded once, at the store. `lora.wgrad` sums `splits` ranges of the tokens
//! separately, whole slices of 32, in a workspace that `column_sum.finish` adds up in a fixed order, or with one range
//! writes the gradient itself, overwriting it in the first micro-batch of a step and adding in later ones.
//!
//! At common ranks these are memory-bound: a GEMM with W multiplies each element n or k times, these rank times. So
//! each reads its large operand once, for all parts together, and tiles are as narrow as t. bf16 runs on tensor cores
//! by `mma.sync` on every architecture (`mma/`), with the mainloop of `gemm/mma`, if all rows are whole vectors of 16
//! bytes; everything else on CUDA cores (`simt/`).
//!
//! Sources: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021 (arXiv 2106.09685); Kalajdzievski, "A
//! Rank Stabilization Scaling Factor for Fine-Tuning with LoRA", 2023 (arXiv 2312.03732).

mod backward;
mod forward;
mod host;
mod samples;
mod variants;

use crate::abi::lora_part;

pub use backward::{LoraDgradA, LoraDgradB, LoraWgrad};
pub use forward::{LoraFwdA, LoraFwdB};

/// Builds a kernel of the family from its sources: one for CUDA cores, and one for tensor cores with the headers of
/// `gemm/mma`. Those that differ from each other in their host function alone, which they name, must equal it in the
/// family's samples.
macro_rules! lora_gemm {
    ($kernel:ident, $file:literal) => {
        impl Build for $kernel {
            type Variant = Tiling;

            fn source(&self, variant: Tiling) -> Source {
                match variant {
                    Tiling::Mma(_) => Source {
                        path: concat!("lora/mma/", $file),
                        text: include_str!(concat!("mma/", $file)),
                        headers: &[
                            ("lora.h", include_str!("lora.h")),
                            ("gemm.h", include_str!("../gemm/gemm.h")),
                            ("gemm/raster.cuh", include_str!("../gemm/raster.cuh")),
                            ("gemm/mma/operand.cuh", include_str!("../gemm/mma/operand.cuh")),
                            ("gemm/mma/mainloop.cuh", include_str!("../gemm/mma/mainloop.cuh")),
                            ("gemm/mma/epilogue.cuh", include_str!("../gemm/mma/epilogue.cuh")),
                            ("lora/mma/tile.cuh", include_str!("mma/tile.cuh")),
                            ("lora/mma/epilogue.cuh", include_str!("mma/epilogue.cuh")),
                            ("lora/mma/add.cuh", include_str!("mma/add.cuh")),
                        ],
                        common: &crate::COMMON,
                    },
                    Tiling::CudaCores(_) => Source {
                        path: concat!("lora/simt/", $file),
                        text: include_str!(concat!("simt/", $file)),
                        headers: &[
                            ("lora.h", include_str!("lora.h")),
                            ("gemm.h", include_str!("../gemm/gemm.h")),
                            ("gemm/simt/mainloop.cuh", include_str!("../gemm/simt/mainloop.cuh")),
                        ],
                        common: &crate::COMMON,
                    },
                }
            }

            fn variants(&self, _arch: Arch) -> Vec<Tiling> {
                Self::FORM.variants(self.x).to_vec()
            }

            fn select(&self, p: &Self::Params, _arch: Arch) -> Tiling {
                Self::FORM.select(self.x, |variant| self.admits(variant, p), Self::results(p)[0])
            }

            /// Admits bf16 on tensor cores if it can be copied in vectors.
            fn admits(&self, variant: Tiling, p: &Self::Params) -> bool {
                self.x != Dtype::Bf16 || matches!(variant, Tiling::Mma(_)) == Self::vectors(p)
            }

            fn geometry(&self, variant: Tiling, p: &Self::Params) -> Geometry {
                variants::geometry(variant, &Self::results(p), Self::splits(p))
            }
        }
    };
    ($kernel:ident, $file:literal, $host:path) => {
        lora_gemm!($kernel, $file);

        impl Reference for $kernel {
            fn examples() -> Vec<Self> {
                [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                $host(p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                SAMPLES.map(Self::Params::from).into()
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                Sample::typical(batch).into()
            }

            fn tolerance(&self, operand: &Operand) -> Tolerance {
                tolerance(operand)
            }
        }
    };
}

use lora_gemm;

/// Returns the columns of all parts together.
fn width(parts: &[lora_part]) -> u32 {
    parts.iter().map(|part| part.width).sum()
}

macro_rules! with_parts {
    ($($key:ident: $params:ident),*) => {
        $(impl $key {
            /// Returns the columns of all parts together.
            pub(crate) fn width(&self, p: &crate::abi::$params) -> u64 {
                width(&p.part).into()
            }
        })*
    };
}
with_parts!(LoraFwdB: lora_fwd_b_params, LoraDgradB: lora_dgrad_b_params, LoraWgrad: lora_wgrad_params);

/// True if rows and parts of these lengths, in bf16, and these addresses are whole 16-byte vectors.
fn whole_vectors(lengths: &[u32], parts: &[lora_part], addresses: &[u64]) -> bool {
    let parts = parts.iter().flat_map(|part| [part.start, part.width]);
    lengths.iter().copied().chain(parts).all(|elems| elems.is_multiple_of(8))
        && addresses.iter().all(|address| address.is_multiple_of(16))
}
