//! The kernels of `vectors.cu` that have a reference: how they are launched, and what they must equal.

pub mod abi;

use abi::{Saxpy, Sum};
use precast_core::host::Views;
use precast_core::*;

use super::kernels;

/// Those kernels, for checks.
pub static CHECKED: Registry = Registry::new("plain", abi::OPS);

impl Build for Saxpy {
    type Variant = Threads;

    fn plain(&self) -> Option<&'static PlainKernel> {
        Some(&kernels::SAXPY)
    }
    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 256 }]
    }
    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.n.div_ceil(variant.threads), variant.threads)
    }
}

impl Reference for Saxpy {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        let (x, mut y) = (views.load("x"), views.store("y"));
        y.iter_mut().zip(&*x).for_each(|(y, x)| *y += p.a * x);
    }
    fn samples(&self) -> Vec<Self::Params> {
        [(1, 2.0), (256, -0.5), (1003, 1.5)].map(|(n, a)| Self::Params { n, a, ..Default::default() }).into()
    }
}

/// Blocks of [`Sum`], a partial sum each, and their threads.
pub const BLOCKS: u32 = 8;
pub const THREADS: u32 = 128;

impl Build for Sum {
    type Variant = Threads;

    fn plain(&self) -> Option<&'static PlainKernel> {
        Some(&kernels::SUM)
    }
    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: THREADS }]
    }
    fn geometry(&self, Threads { threads }: Threads, _p: &Self::Params) -> Geometry {
        Geometry { shared_bytes: threads * 4, ..Geometry::linear(BLOCKS, threads) }
    }
}

impl Reference for Sum {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        let (x, mut partial) = (views.load("x"), views.store("partial"));
        for (block, partial) in partial.iter_mut().enumerate() {
            let rows = x.chunks(THREADS as usize).skip(block).step_by(BLOCKS as usize);
            *partial = rows.flatten().map(|x| f64::from(*x)).sum::<f64>() as f32;
        }
    }
    fn samples(&self) -> Vec<Self::Params> {
        [1, 1024, 5003].map(|n| Self::Params { n, ..Default::default() }).into()
    }
}
