//! Softmax of rows, for f32 and bf16: how it is built, and what it must equal.

pub mod abi;

use abi::Softmax;
use precast_core::host::Views;
use precast_core::*;

pub static KERNELS: Registry = Registry::new("softmax", abi::OPS);

impl Build for Softmax {
    type Variant = Threads;

    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        // Short rows have one warp each, which waits for no other.
        let threads = if self.columns <= 256 { [32, 128] } else { [256, 1024] };
        threads.map(|threads| Threads { threads }).into()
    }
    fn source(&self, _variant: Threads) -> Source {
        source!("softmax", "softmax.cu")
    }
    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        Geometry::linear(p.rows.min(4096), variant.threads)
    }
    /// One CTA computes all rows as well as many do: the checker tries that, too.
    fn smallest_grid(&self, _variant: Threads) -> Option<u32> {
        Some(1)
    }
}

impl Reference for Softmax {
    fn examples() -> Vec<Self> {
        let keys = [(1, Dtype::F32), (33, Dtype::Bf16), (255, Dtype::F32), (1000, Dtype::F32), (4099, Dtype::Bf16)];
        keys.map(|(columns, x)| Self { columns, x }).into()
    }
    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        let (x, mut y) = (views.load("x"), views.store("y"));
        let columns = self.columns as usize;
        for (x, y) in x.chunks(columns).zip(y.chunks_mut(columns)) {
            let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp = |x: &f32| (f64::from(*x) - f64::from(max)).exp();
            let sum: f64 = x.iter().map(exp).sum();
            y.iter_mut().zip(x).for_each(|(y, x)| *y = (exp(x) / sum) as f32);
        }
    }
    fn samples(&self) -> Vec<Self::Params> {
        [1, 7].map(|rows| Self::Params { rows, ..Default::default() }).into()
    }
}
