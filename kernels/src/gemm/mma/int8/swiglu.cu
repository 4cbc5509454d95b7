// Gate and up projection in int8 on tensor cores, gated in the epilogue: y = silu(x wg^T) (x wu^T), nothing else leaves
// the registers. w holds the rows of wg and then those of wu: half of a warp's columns are of the one, half the same
// columns of the other. n is a multiple of 8, k of 16, addresses of 16 bytes; m is any.
// Bound: tensor cores. Sources: see gemm/mma/mainloop.cuh; NVIDIA, CUTLASS, "Efficient GEMM in CUDA".
#define INT8
#include "gemm/swiglu.cuh"
#include "gemm/mma/int8/scale.cuh"
#include "gemm/mma/work.cuh"

enum : uint32_t { GATED_N = BLOCKS_N / 2 }; // blocks of y; the up sums are as many blocks further

// Returns the bias of two neighboring columns.
__device__ __forceinline__ uint32_t pair_at(const bf16* bias, uint32_t j, uint32_t columns) {
    return j < columns ? *reinterpret_cast<const uint32_t*>(bias + j) : 0;
}

KERNEL(gemm_swiglu_params) {
    TAKE_TILE(gemm_swiglu_params, TILE_N / 2, 2 * p.n);
    Sums<int32_t> sums;
    const Matrix a = {(const void*)own.x, p.k / 2, own.m, p.k / 2}, b = {(const void*)own.w, p.k / 2, p.n, p.k / 2};
    gemm<false, false, true>(a, b, {tile, 0, 1}, sums);
    Accumulators acc = {sums.i0, sums.j0};
    const uint32_t lane = threadIdx.x % WARP;
    float of_rows[BLOCKS_M][2];
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) of_rows[m][half] = row_scale(sums, own.x_scale, m, half, own.m);
#pragma unroll
    for (uint32_t n = 0; n < GATED_N; n++) {
        const uint32_t j = acc.j0 + n * 8 + lane % 4 * 2;
        const float2_t of_gate = pair_scale(own.w_scale, j, p.n, 0), of_up = pair_scale(own.w_scale, j, p.n, p.n);
        uint32_t gate_bias = 0, up_bias = 0;
        if (KEY_BIAS) {
            gate_bias = pair_at((const bf16*)p.bias, j, p.n);
            up_bias = pair_at((const bf16*)p.bias + p.n, j, p.n);
        }
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                float gate = scaled(sums.v[m][n][e], of_rows[m][e / 2], of_gate.v[e % 2]);
                float up = scaled(sums.v[m][n + GATED_N][e], of_rows[m][e / 2], of_up.v[e % 2]);
                if (KEY_BIAS) {
                    gate += unpack_bf16x2(gate_bias, e);
                    up += unpack_bf16x2(up_bias, e);
                }
                acc.v[m][n][e] = swiglu<bf16>(gate, up);
            }
    }
    store<false, false, GATED_N>(acc, own.y, 0, 0, own.m, p.n);
}
