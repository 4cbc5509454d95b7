// Gate and up projection on tensor cores, gated in the epilogue: y = silu(x wg^T) (x wu^T), nothing else leaves the
// registers. w holds the rows of wg and then those of wu: half of a warp's columns are of the one, half the same
// columns of the other. n and k are multiples of 8, addresses of 16 bytes; m is any.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/swiglu.cuh"
#include "gemm/mma/epilogue.cuh"
#include "gemm/mma/work.cuh"

enum : uint32_t { GATED_N = BLOCKS_N / 2 }; // blocks of y; the up accumulators are as many blocks further

// Returns the bias of two neighboring columns.
__device__ __forceinline__ uint32_t pair_at(const bf16* bias, uint32_t j, uint32_t columns) {
    return j < columns ? *reinterpret_cast<const uint32_t*>(bias + j) : 0;
}

KERNEL(gemm_swiglu_params) {
    TAKE_TILE(gemm_swiglu_params, TILE_N / 2, 2 * p.n);
    Accumulators acc;
    const Matrix a = {(const void*)own.x, p.k, own.m, p.k}, b = {(const void*)own.w, p.k, p.n, p.k};
    gemm<false, false, true>(a, b, {tile, 0, 1}, acc);
#pragma unroll
    for (uint32_t n = 0; n < GATED_N; n++) {
        uint32_t gate_bias = 0, up_bias = 0;
        if (KEY_BIAS) {
            const uint32_t j = acc.j0 + n * 8 + threadIdx.x % 4 * 2;
            gate_bias = pair_at((const bf16*)p.bias, j, p.n);
            up_bias = pair_at((const bf16*)p.bias + p.n, j, p.n);
        }
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                float &gate = acc.v[m][n][e], up = acc.v[m][n + GATED_N][e];
                if (KEY_BIAS) {
                    gate += unpack_bf16x2(gate_bias, e);
                    up += unpack_bf16x2(up_bias, e);
                }
                gate = swiglu<bf16>(gate, up);
            }
    }
    store<false, false, GATED_N>(acc, own.y, 0, 0, own.m, p.n);
}
