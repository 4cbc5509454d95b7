//! The products.

use std::mem::offset_of;

use super::host;
use crate::abi::{int8_fwd_params, int8_swiglu_params};
use crate::gemm::select::{self, GemmOp, ProblemSize};
use crate::gemm::variants::Tiling;
use crate::gemm::wgmma::{self, MatrixLayout};
use crate::gemm::{area, flops, geometry};
use crate::host::Views;
use crate::{
    Arch, Batch, Build, Content, Dtype, Geometry, Kernel, Operand, Reference, Source, TensorMap, Tolerance, key,
    operand,
};

key! {
    /// Inputs to outputs.
    pub struct Int8Fwd = "int8.fwd" { bias: bool, residual: bool, y: Dtype }
}

key! {
    /// Inputs to gated outputs.
    pub struct Int8Swiglu = "int8.swiglu" { bias: bool, y: Dtype }
}

/// Ragged and tile-crossing shapes (m, n, k); the last are several slices deep, and several tiles wide and high.
const SAMPLES: [(u32, u32, u32); 6] =
    [(1, 8, 16), (33, 72, 48), (130, 264, 272), (70, 136, 1296), (300, 520, 528), (520, 264, 144)];

/// What scales are in checks: of both factors together about what makes outputs of size one.
const SCALES: Content = Content::Uniform(1e-3, 2e-2);

/// A source of the family with the mainloop of `gemm` that it calls.
macro_rules! source_of {
    ($variant:expr, $file:literal $(, $header:literal)?) => {
        match $variant {
            Tiling::Wgmma(_) => Source {
                path: concat!("int8/wgmma/", $file),
                text: include_str!(concat!("wgmma/", $file)),
                headers: &[
                    ("int8.h", include_str!("../../abi/int8.h")),
                    ("gemm.h", include_str!("../../abi/gemm.h")),
                    ("gemm/raster.cuh", include_str!("../gemm/raster.cuh")),
                    $(($header, include_str!(concat!("../", $header))),)?
                    ("gemm/wgmma/scheduler.cuh", include_str!("../gemm/wgmma/scheduler.cuh")),
                    ("gemm/wgmma/cluster_reduction.cuh", include_str!("../gemm/wgmma/cluster_reduction.cuh")),
                    ("gemm/wgmma/mainloop.cuh", include_str!("../gemm/wgmma/mainloop.cuh")),
                    ("gemm/wgmma/epilogue.cuh", include_str!("../gemm/wgmma/epilogue.cuh")),
                    ("int8/scale.cuh", include_str!("scale.cuh")),
                    ("int8/wgmma/epilogue.cuh", include_str!("wgmma/epilogue.cuh")),
                ],
            },
            Tiling::Mma(_) | Tiling::CudaCores(_) => Source {
                path: concat!("int8/mma/", $file),
                text: include_str!(concat!("mma/", $file)),
                headers: &[
                    ("int8.h", include_str!("../../abi/int8.h")),
                    ("gemm.h", include_str!("../../abi/gemm.h")),
                    ("gemm/raster.cuh", include_str!("../gemm/raster.cuh")),
                    $(($header, include_str!(concat!("../", $header))),)?
                    ("gemm/mma/operand.cuh", include_str!("../gemm/mma/operand.cuh")),
                    ("gemm/mma/mainloop.cuh", include_str!("../gemm/mma/mainloop.cuh")),
                    ("gemm/mma/epilogue.cuh", include_str!("../gemm/mma/epilogue.cuh")),
                    ("int8/scale.cuh", include_str!("scale.cuh")),
                    ("int8/mma/scale.cuh", include_str!("mma/scale.cuh")),
                ],
            },
        }
    };
}

/// What both say of their builds: depths are pairs of values, the elements that `gemm`'s mainloops move.
macro_rules! build_of {
    ($op:expr, $file:literal, $columns:literal $(, $header:literal)?) => {
        type Variant = Tiling;

        fn source(&self, variant: Tiling) -> Source {
            source_of!(variant, $file $(, $header)?)
        }

        fn variants(&self, arch: Arch) -> Vec<Tiling> {
            if self.y == Dtype::Bf16 { select::variants($op, Dtype::I8, arch) } else { Vec::new() }
        }

        fn problem(&self, p: &Self::Params) -> Option<String> {
            Some(format!("{}x{}x{}", p.m, p.n, p.k))
        }

        fn select(&self, p: &Self::Params, arch: Arch) -> Tiling {
            select::select(&self.problem_size(p), arch)
        }

        fn admits(&self, variant: Tiling, p: &Self::Params) -> bool {
            select::admits(&self.problem_size(p), variant)
        }

        fn geometry(&self, variant: Tiling, p: &Self::Params) -> Geometry {
            geometry(variant, p.m, $columns * p.n, 1)
        }

        fn smallest_grid(&self, variant: Tiling) -> Option<u32> {
            match variant {
                Tiling::Wgmma(wgmma) => wgmma::smallest_grid(wgmma),
                Tiling::Mma(_) | Tiling::CudaCores(_) => None,
            }
        }

        fn tensor_maps(&self, variant: Tiling, p: &Self::Params) -> Vec<TensorMap> {
            let Tiling::Wgmma(wgmma) = variant else { return Vec::new() };
            let layouts: [MatrixLayout; 2] = [
                (offset_of!(Self::Params, x), [p.m, p.k / 2], false),
                (offset_of!(Self::Params, w), [$columns * p.n, p.k / 2], false),
            ];
            wgmma::tensor_maps($op, wgmma, offset_of!(Self::Params, maps), layouts)
        }
    };
}

/// Whether rows are whole vectors of 16 bytes of values and of outputs, and pairs of scales lie on 8 bytes.
fn vectors(n: u32, k: u32, addresses: &[u64], w_scale: u64) -> bool {
    n.is_multiple_of(8)
        && k.is_multiple_of(16)
        && addresses.iter().all(|address| address.is_multiple_of(16))
        && w_scale.is_multiple_of(8)
}

impl Int8Fwd {
    fn problem_size(&self, p: &int8_fwd_params) -> ProblemSize {
        let vectors = vectors(p.n, p.k, &[p.x, p.w, p.y, p.bias, p.residual], p.w_scale);
        ProblemSize { op: GemmOp::Fwd, rows: p.m, columns: p.n, depth: p.k / 2, splits: 1, dtype: Dtype::I8, vectors }
    }
}

impl Int8Swiglu {
    fn problem_size(&self, p: &int8_swiglu_params) -> ProblemSize {
        let vectors = vectors(p.n, p.k, &[p.x, p.w, p.y, p.bias], p.w_scale);
        ProblemSize {
            op: GemmOp::Swiglu,
            rows: p.m,
            columns: 2 * p.n,
            depth: p.k / 2,
            splits: 1,
            dtype: Dtype::I8,
            vectors,
        }
    }
}

impl Kernel for Int8Fwd {
    type Params = int8_fwd_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let mut operands = vec![
            operand!(Read Self::Params, x: Dtype::I8, area(p.m, p.k)),
            operand!(Read Self::Params, w: Dtype::I8, area(p.n, p.k)),
            operand!(Read Self::Params, x_scale: Dtype::F32, p.m).with(SCALES),
            operand!(Read Self::Params, w_scale: Dtype::F32, p.n).with(SCALES),
            operand!(Write Self::Params, y: self.y, area(p.m, p.n)),
        ];
        if self.bias {
            operands.push(operand!(Read Self::Params, bias: self.y, p.n));
        }
        if self.residual {
            operands.push(operand!(Read Self::Params, residual: self.y, area(p.m, p.n)));
        }
        operands
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        flops(p.m, p.n, p.k)
    }
}

impl Build for Int8Fwd {
    build_of!(GemmOp::Fwd, "fwd.cu", 1);
}

impl Reference for Int8Fwd {
    fn examples() -> Vec<Self> {
        let keys = [(false, false), (true, false), (false, true)];
        keys.map(|(bias, residual)| Self { bias, residual, y: Dtype::Bf16 }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::fwd(self.bias, self.residual, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        SAMPLES.map(|(m, n, k)| Self::Params { m, n, k, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, ..Default::default() }
    }

    fn tolerance(&self, _operand: &Operand) -> Tolerance {
        Tolerance::EXACT
    }
}

impl Kernel for Int8Swiglu {
    type Params = int8_swiglu_params;

    fn operands(&self, p: &Self::Params) -> Vec<Operand> {
        let mut operands = vec![
            operand!(Read Self::Params, x: Dtype::I8, area(p.m, p.k)),
            operand!(Read Self::Params, w: Dtype::I8, 2 * area(p.n, p.k)),
            operand!(Read Self::Params, x_scale: Dtype::F32, p.m).with(SCALES),
            operand!(Read Self::Params, w_scale: Dtype::F32, 2 * p.n).with(SCALES),
            operand!(Write Self::Params, y: self.y, area(p.m, p.n)),
        ];
        if self.bias {
            operands.push(operand!(Read Self::Params, bias: self.y, 2 * p.n));
        }
        operands
    }

    fn flops(&self, p: &Self::Params) -> u64 {
        flops(p.m, 2 * p.n, p.k)
    }
}

impl Build for Int8Swiglu {
    build_of!(GemmOp::Swiglu, "swiglu.cu", 2, "gemm/swiglu.cuh");
}

impl Reference for Int8Swiglu {
    fn examples() -> Vec<Self> {
        [false, true].map(|bias| Self { bias, y: Dtype::Bf16 }).into()
    }

    fn host(&self, p: &Self::Params, views: &mut Views<'_>) {
        host::swiglu(self.bias, self.y, p, views);
    }

    fn samples(&self) -> Vec<Self::Params> {
        SAMPLES.map(|(m, n, k)| Self::Params { m, n, k, ..Default::default() }).into()
    }

    fn typical(&self, batch: Batch) -> Self::Params {
        Self::Params { m: batch.tokens(), n: Batch::WIDTH, k: Batch::WIDTH, ..Default::default() }
    }
}
