// Linear layer forward on sm_90a: y = x w^T, with bias and residual added before the one rounding in the epilogue.
// Both operands are K-major. The residual is fetched while the last wgmma are in flight. TMA descriptors: x, w.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/wgmma/epilogue.cuh"
#include "gemm/wgmma/forward.cuh"

CLUSTER_KERNEL(gemm_fwd_params, CLUSTER) {
    Bf16Epilogue<KEY_BIAS, KEY_RESIDUAL> y = {(const bf16*)p.bias, (const bf16*)p.residual, (bf16*)p.y, p.m, p.n};
    forward(p, p.k, y);
}
