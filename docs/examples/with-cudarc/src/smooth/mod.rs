//! `y[i] = (x[i - 1] + 2 x[i] + x[i + 1]) / 4`: how it is built, and what it must equal.

pub mod abi;

use abi::Smooth;
use precast_core::host::Views;
use precast_core::*;

pub static KERNELS: Registry = Registry::new("with-cudarc", abi::OPS);

impl Build for Smooth {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 256 }]
    }
    fn source(&self, _variant: Threads) -> Source {
        source!("smooth", "smooth.cu")
    }
    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::strided(p.n, variant.threads)
    }
}

impl Reference for Smooth {
    fn examples() -> Vec<Self> {
        [Dtype::F32, Dtype::Bf16].map(|x| Self { x }).into()
    }
    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        let (x, mut y) = (views.load("x"), views.store("y"));
        for i in 0..x.len() {
            let (before, behind) = (x[i.saturating_sub(1)], x[(i + 1).min(x.len() - 1)]);
            y[i] = 0.25 * (before + behind) + 0.5 * x[i];
        }
    }
    fn samples(&self) -> Vec<Self::Params> {
        [1, 2, 5003].map(|n| Self::Params { n, ..Default::default() }).into()
    }
    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
