// Linear layer forward in int8 on sm_90a: y = x w^T, scaled by row and column, with bias and residual added before the
// one rounding in the epilogue. Both operands are K-major, pairs of values move as elements of 16 bits. TMA
// descriptors: x, w. Bound: tensor cores. Source: see gemm/wgmma/mainloop.cuh; PTX ISA, "wgmma.mma_async".
// Sources: NVIDIA, CUTLASS 3; DeepGEMM.
#define INT8
#include "gemm/wgmma/int8/epilogue.cuh"
#include "gemm/wgmma/forward.cuh"

CLUSTER_KERNEL(gemm_fwd_params, CLUSTER) {
    Int8Epilogue<KEY_BIAS, KEY_RESIDUAL> y = {
        {(const bf16*)p.bias, (const bf16*)p.residual, (bf16*)p.y, p.m, p.n},
        {(const float*)p.x_scale, (const float*)p.w_scale, (const float*)p.w_scale},
    };
    forward(p, p.k / 2, y);
}
