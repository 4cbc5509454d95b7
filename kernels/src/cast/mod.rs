//! Cast: one float dtype to another, rounding to nearest even.
//!
//! `y[i] = x[i]`; `x` and `y` hold n elements of the dtypes `from` and `to`.
//! Source: IEEE 754 conversion; bf16 is the upper half of a single.

mod host;

use crate::abi::cast_params;
use crate::host::Views;
use crate::kernel::{Geometry, Kernel, Operand};
use crate::source::Source;
use crate::{Arch, Dtype, Variant, key, operand, source};

key! {
    /// Convert elements.
    pub struct Cast = "cast" { from: Dtype, to: Dtype }
}

const VARIANTS: &[Variant] = &[Variant(&[("threads", 256)])];

impl Kernel for Cast {
    type Params = cast_params;
    const SOURCE: Source = source!("cast", "cast.cu");

    fn variants(&self, _arch: Arch) -> &'static [Variant] {
        VARIANTS
    }

    fn geometry(&self, variant: Variant, p: &Self::Params) -> Geometry {
        Geometry::strided(p.n, variant)
    }

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![operand!(Read Self::Params, x: self.from, p.n), operand!(Write Self::Params, y: self.to, p.n)]
    }

    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        host::cast(views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        [1, 5001].map(|n| Self::Params { n, ..Default::default() }).into()
    }
}
