//! Forward pass of adapters: their contribution to the output of a stack.

use super::samples::{SAMPLES, Sample};
use super::variants::{self, Form, Product, Tiling};
use super::{build_of, host, reference_of, source_of, whole_vectors};
pub use crate::abi::{LoraFwdA, LoraFwdB};
use crate::gemm::tolerance;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance};

impl Product for LoraFwdA {
    const FORM: Form = Form::Stream;

    /// One result for all parts.
    fn results(p: &Self::Params) -> Vec<(u32, u32)> {
        vec![(p.m, p.parts * p.rank)]
    }

    fn vectors(p: &Self::Params) -> bool {
        whole_vectors(&[p.k, p.rank], &[], &[p.x, p.a, p.t])
    }
}

impl Build for LoraFwdA {
    build_of!("fwd_a.cu");
}

reference_of!(LoraFwdA, host::fwd_a);

impl Product for LoraFwdB {
    const FORM: Form = Form::Add;

    fn results(p: &Self::Params) -> Vec<(u32, u32)> {
        p.part[..p.parts as usize].iter().map(|part| (p.m, part.width)).collect()
    }

    fn vectors(p: &Self::Params) -> bool {
        whole_vectors(&[p.n, p.rank], &p.part, &[p.t, p.b, p.y])
    }
}

impl Build for LoraFwdB {
    build_of!("fwd_b.cu");
}

reference_of!(LoraFwdB, host::fwd_b);
