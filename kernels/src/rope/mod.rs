//! Rotary position embedding, half-split pairing: element i of a head rotates with element i + d/2.
//!
//! With the token's position `t` and `c = cos[t, i]`, `s = sin[t, i]`: `(a, b) -> (a c - b s, b c + a s)`. Backward
//! rotates the gradient the other way.
//!
//! The tables come from the host: theta and any scaling of it stay out of the key, and no thread needs a
//! trigonometric function (whose large-argument path would spill).
//! Source: Su et al., "RoFormer", 2021; the pairing is that of Hugging Face `rotate_half`.

mod host;
mod store;

use crate::abi::rope_params;
pub use crate::abi::{RopeBwd, RopeFwd, RopeStore};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Reference, Source, source, variant};

variant! {
    /// A thread rotates one vector of positions in `heads` neighboring heads.
    pub struct Heads {
        /// Heads per thread.
        heads: u32,
        threads: u32,
    }
}

/// Returns a grid with a thread per item, which strides beyond a limit.
fn geometry(d: u32, x: Dtype, variant: Heads, p: &rope_params) -> Geometry {
    let width = x.vector_width(d / 2).min(x.vector_width(p.row_stride));
    let items = u64::from(p.tokens) * u64::from(p.heads.div_ceil(variant.heads) * (d / 2 / width));
    Geometry::linear(items.div_ceil(u64::from(variant.threads)).min(1 << 20) as u32, variant.threads)
}

fn samples(d: u32) -> Vec<rope_params> {
    [(1, 1, 1, 0, 0), (15, 5, 3, 2, 0), (9, 4, 6, 1, 0), (6, 3, 5, 0, 1)]
        .map(|(tokens, seq_len, heads, rest, ragged)| rope_params {
            tokens,
            seq_len,
            heads,
            row_stride: (heads + rest) * d + ragged,
            ..Default::default()
        })
        .into()
}

macro_rules! rotation {
    ($key:ty, $file:literal, $direction:expr, $examples:expr) => {
        impl Build for $key {
            type Variant = Heads;

            fn variants(&self, _arch: Arch) -> Vec<Heads> {
                vec![Heads { heads: 4, threads: 128 }]
            }

            fn source(&self, _variant: Heads) -> Source {
                source!("rope", $file, "rotate.cuh")
            }

            fn geometry(&self, variant: Heads, p: &Self::Params) -> Geometry {
                geometry(self.d, self.x, variant, p)
            }
        }

        impl Reference for $key {
            fn examples() -> Vec<Self> {
                $examples.map(|(d, x)| Self { d, x }).into()
            }

            fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
                host::rotate(self.d, $direction, p, views);
            }

            fn samples(&self) -> Vec<Self::Params> {
                samples(self.d)
            }

            fn typical(&self, batch: Batch) -> Self::Params {
                let (tokens, seq_len, heads) = (batch.tokens(), batch.seq_len, Batch::WIDTH / self.d);
                Self::Params { tokens, seq_len, heads, row_stride: heads * self.d, ..Default::default() }
            }
        }
    };
}

rotation!(RopeFwd, "fwd.cu", 1.0, [(48, Dtype::Bf16), (64, Dtype::F32)]);
rotation!(RopeBwd, "bwd.cu", -1.0, [(16, Dtype::Bf16), (32, Dtype::F32)]);
