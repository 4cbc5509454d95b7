//! The page's kernel, with something wrong in its Rust or in its barriers.

use precast_core::fields::{Field, Fields};
use precast_core::host::Views;
use precast_core::{Arch, Build, Dtype, Geometry, Kernel, Operand, Reference, Source, Threads, Tolerance};

use crate::abi::softcap_fwd_params;
use crate::kernels::changed;
use crate::softcap::SoftcapFwd;

/// A barrier less in a source with barriers.
pub const RACE: u8 = 1;
pub const NO_SAMPLE: u8 = 2;
// Operands that are declared wrongly. An input that is too long is in nobody's way: a plan keeps more alive, no more.
pub const LONG_OUTPUT: u8 = 3;
pub const ONE_TOKEN: u8 = 4;
pub const WIDE_OUTPUT: u8 = 5;
/// A tolerance that says nothing.
pub const LOOSE: u8 = 6;

const KERNEL: SoftcapFwd = SoftcapFwd { x: Dtype::Bf16 };

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong<const WHAT: u8>;

impl<const WHAT: u8> Kernel for Wrong<WHAT> {
    type Params = softcap_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let mut operands = KERNEL.operands(p);
        match WHAT {
            LONG_OUTPUT => operands[1].elems += 4,
            ONE_TOKEN => operands.iter_mut().for_each(|operand| operand.elems = p.n.into()),
            WIDE_OUTPUT => operands[1].format = Dtype::F32.into(),
            _ => {}
        }
        operands
    }
}

impl<const WHAT: u8> Fields for Wrong<WHAT> {
    const OP: &'static str = SoftcapFwd::OP;

    fn fields(&self) -> Vec<Field> {
        KERNEL.fields()
    }

    fn from_pairs(_pairs: &[(&str, &str)]) -> Option<Self> {
        None
    }
}

impl<const WHAT: u8> Build for Wrong<WHAT> {
    type Variant = Threads;

    fn variants(&self, arch: Arch) -> Vec<Threads> {
        KERNEL.variants(arch)
    }

    fn source(&self, variant: Threads) -> Source {
        let page = KERNEL.source(variant);
        let staged = Source { path: "softcap/staged.cu", text: include_str!("planted/staged.cu"), ..page };
        if WHAT == RACE { changed(staged, "sync_block(); // the tile has been read", "") } else { page }
    }

    fn geometry(&self, variant: Threads, p: &Self::Params) -> Geometry {
        KERNEL.geometry(variant, p)
    }
}

impl<const WHAT: u8> Reference for Wrong<WHAT> {
    fn examples() -> Vec<Self> {
        vec![Self]
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        KERNEL.host(p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        if WHAT == NO_SAMPLE { Vec::new() } else { KERNEL.samples() }
    }

    fn tolerance(&self, operand: &Operand) -> Tolerance {
        let own = KERNEL.tolerance(operand);
        if WHAT == LOOSE { Tolerance { norm: 1.5, ..own } } else { own }
    }
}
