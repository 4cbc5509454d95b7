// Gate and up projection in int8 on sm_90a, gated in the epilogue: y = silu(x wg^T) (x wu^T), nothing else leaves the
// registers. Tiles as in gemm/wgmma/swiglu.cu: one thread holds the sums of gate and up. TMA descriptors: x, w.
// Bound: tensor cores. Sources: see fwd.cu.
#define INT8
#include "gemm/wgmma/int8/epilogue.cuh"
#include "gemm/wgmma/gated.cuh"
#include "gemm/wgmma/forward.cuh"

CLUSTER_KERNEL(gemm_swiglu_params, CLUSTER) {
    GatedEpilogue<Int8Epilogue<KEY_BIAS, false, true>> y = {{
        {(const bf16*)p.bias, nullptr, (bf16*)p.y, p.m, p.n},
        {(const float*)p.x_scale, (const float*)p.w_scale, (const float*)p.w_scale},
    }};
    forward(p, p.k / 2, y);
}
