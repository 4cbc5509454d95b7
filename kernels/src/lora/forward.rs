//! Forward pass of adapters: their contribution to the output of a stack.

use super::samples::{SAMPLES, Sample};
use super::variants::{self, GemmForm, LoraGemm, Tiling};
use super::{host, lora_gemm, whole_vectors};
pub use crate::abi::{LoraFwdA, LoraFwdB};
use crate::gemm::tolerance;
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Operand, Reference, Source, Tolerance};

impl LoraGemm for LoraFwdA {
    const FORM: GemmForm = GemmForm::Stream;

    /// One result for all parts.
    fn results(p: &Self::Params) -> Vec<(u32, u32)> {
        vec![(p.m, p.parts * p.rank)]
    }

    fn vectors(p: &Self::Params) -> bool {
        whole_vectors(&[p.k, p.rank], &[], &[p.x, p.a, p.t])
    }
}

lora_gemm!(LoraFwdA, "fwd_a.cu", host::fwd_a);

impl LoraGemm for LoraFwdB {
    const FORM: GemmForm = GemmForm::Add;

    fn results(p: &Self::Params) -> Vec<(u32, u32)> {
        p.part[..p.parts as usize].iter().map(|part| (p.m, part.width)).collect()
    }

    fn vectors(p: &Self::Params) -> bool {
        whole_vectors(&[p.n, p.rank], &p.part, &[p.t, p.b, p.y])
    }
}

lora_gemm!(LoraFwdB, "fwd_b.cu", host::fwd_b);
