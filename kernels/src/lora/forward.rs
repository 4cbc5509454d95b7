//! What adapters add to the output of a stack.

use super::samples::{SAMPLES, Sample};
use super::variants::{self, Form, Product, Tiling};
use super::{build_of, host, reference_of, source_of, whole_vectors, width};
use crate::abi::{lora_fwd_a_params, lora_fwd_b_params};
use crate::gemm::{area, tolerance};
use crate::host::Views;
use crate::{Arch, Batch, Build, Dtype, Geometry, Kernel, Operand, Reference, Source, Tolerance, key, operand};

key! {
    /// Inputs to ranks.
    pub struct LoraFwdA = "lora.fwd_a" { x: Dtype }
}

key! {
    /// Ranks to outputs, which are added to.
    pub struct LoraFwdB = "lora.fwd_b" { x: Dtype }
}

impl Kernel for LoraFwdA {
    type Params = lora_fwd_a_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let columns = p.parts * p.rank;
        vec![
            operand!(Read Self::Params, x: self.x, area(p.m, p.k)),
            operand!(Read Self::Params, a: self.x, area(columns, p.k)),
            operand!(Write Self::Params, t: self.x, area(p.m, columns)),
        ]
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        2 * area(p.m, p.k) * u64::from(p.parts * p.rank)
    }
}

impl Product for LoraFwdA {
    const FORM: Form = Form::Stream;

    /// One for all parts.
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

impl Kernel for LoraFwdB {
    type Params = lora_fwd_b_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        vec![
            operand!(Read Self::Params, t: self.x, area(p.m, p.parts * p.rank)),
            operand!(Read Self::Params, b: self.x, area(width(&p.part), p.rank)),
            operand!(ReadWrite Self::Params, y: self.x, area(p.m, p.n)),
        ]
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        2 * area(p.m, width(&p.part)) * u64::from(p.rank)
    }

    /// Of y the parts alone, there and back.
    fn bytes(&self, p: &Self::Params) -> u64 {
        let width = width(&p.part);
        let elems = area(p.m, p.parts * p.rank) + area(width, p.rank) + 2 * area(p.m, width);
        elems * self.x.bytes()
    }
}

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
