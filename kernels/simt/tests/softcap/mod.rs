//! Softcap: numbers that stay below a bound, as Gemma 2 keeps its logits.
//!
//! `y = cap * tanh(x / cap)`.
//! Source: Gemma Team, "Gemma 2: Improving Open Language Models at a Practical Size", 2024.

mod host;

pub use crate::abi::SoftcapFwd;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Reference, Source, Threads, source};

impl Build for SoftcapFwd {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 256 }]
    }

    fn source(&self, _variant: Threads) -> Source {
        source!("softcap", "fwd.cu")
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::strided(u64::from(p.tokens) * u64::from(p.n), variant.threads)
    }
}

impl Reference for SoftcapFwd {
    fn examples() -> Vec<Self> {
        [Dtype::Bf16, Dtype::F32].map(|x| Self { x }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(p.cap, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        // One element, a ragged size, whole vectors; the last shows a cap that is not looked at where it is large.
        let launches = [(1, 1, 30.0), (7, 1031, 30.0), (2, 4096, 50.0), (3, 331, 1000.0)];
        launches.map(|(tokens, n, cap)| Self::Params { tokens, n, cap, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { tokens: batch.tokens(), n: Batch::WIDTH, cap: 30.0, ..Default::default() }
    }
}
