// Linear layer forward in int8 on tensor cores: y = x w^T, scaled by row and column, with bias and residual added
// before the one rounding in the epilogue. Both operands are K-major, pairs of values move as elements of 16 bits. n is
// a multiple of 8, k of 16, addresses of 16 bytes; m is any.
// Bound: tensor cores. Sources: see gemm/mma/mainloop.cuh; NVIDIA, CUTLASS, "Efficient GEMM in CUDA".
#define INT8
#include "gemm/mma/int8/scale.cuh"
#include "gemm/mma/work.cuh"

KERNEL(gemm_fwd_params) {
    TAKE_TILE(gemm_fwd_params, TILE_N, p.n);
    Sums<int32_t> sums;
    const Matrix x = {(const void*)own.x, p.k / 2, own.m, p.k / 2}, w = {(const void*)own.w, p.k / 2, p.n, p.k / 2};
    gemm<false, false>(x, w, {tile, 0, 1}, sums);
    Accumulators acc = {sums.i0, sums.j0};
    float of_rows[BLOCKS_M][2];
#pragma unroll
    for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) of_rows[m][half] = row_scale(sums, own.x_scale, m, half, own.m);
#pragma unroll
    for (uint32_t n = 0; n < BLOCKS_N; n++) {
        const float2_t of_columns = pair_scale(own.w_scale, sums.j0 + n * 8 + threadIdx.x % 4 * 2, p.n, 0);
#pragma unroll
        for (uint32_t m = 0; m < BLOCKS_M; m++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                acc.v[m][n][e] = scaled(sums.v[m][n][e], of_rows[m][e / 2], of_columns.v[e % 2]);
    }
    store<KEY_BIAS, KEY_RESIDUAL>(acc, own.y, p.bias, p.residual, own.m, p.n);
}
