//! `y += a x`, for f32 and bf16: how it is built, and what it must equal.

pub mod abi;

use abi::Saxpy;
use precast_core::host::Views;
use precast_core::*;

pub static KERNELS: Registry = Registry::new("saxpy", abi::OPS);

variant! {
    /// Threads of a CTA, and elements that each moves at once.
    pub struct Vectors { threads: u32, width: u32 }
}

impl Build for Saxpy {
    type Variant = Vectors;

    fn variants(&self, _arch: Arch) -> Vec<Vectors> {
        [16 / self.x.bytes() as u32, 1].map(|width| Vectors { threads: 256, width }).into()
    }
    fn source(&self, _variant: Vectors) -> Source {
        source!("saxpy", "saxpy.cu")
    }
    fn admits(&self, variant: Vectors, p: &Self::Params) -> bool {
        p.n.is_multiple_of(variant.width)
    }
    fn geometry(&self, variant: Vectors, p: &Self::Params) -> Geometry {
        Geometry::strided((p.n / variant.width).into(), variant.threads)
    }
}

impl Reference for Saxpy {
    fn examples() -> Vec<Self> {
        [Dtype::F32, Dtype::Bf16].map(|x| Self { x }).into()
    }
    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        let (x, mut y) = (views.load("x"), views.store("y"));
        y.iter_mut().zip(&*x).for_each(|(y, x)| *y = p.a.mul_add(*x, *y));
    }
    fn samples(&self) -> Vec<Self::Params> {
        [(1, 2.0), (4096, -0.5), (5003, 1.5)].map(|(n, a)| Self::Params { n, a, ..Default::default() }).into()
    }
    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}
