// Column sums of groups of rows: the first step of every bias gradient. A CTA takes one group and a vector of columns
// per lane; its warps add every DEPTH-th row, then reduce through shared memory. The rows of a group depend on the
// shape alone, so the order of additions is fixed.
// Bound: memory. Reads x once. Source: the gradient of y = x W^T + b with respect to b.
#include "column_sum.h"
#include "early.cuh"
#include "vector.cuh"

enum : uint32_t { DEPTH = VARIANT_THREADS / WARP };

template <uint32_t width> __device__ __forceinline__ void partial_sums(const column_sum_partial_params& p) {
    __shared__ float sums[DEPTH][width][WARP + 4]; // padded: free of bank conflicts by row and by column
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const KEY_X* x = (const KEY_X*)p.x;
    const uint32_t first = blockIdx.x * p.group;
    const uint32_t end = min(first + p.group, p.rows);
    for (uint32_t start = blockIdx.y * WARP; start < p.n / width; start += gridDim.y * WARP) {
        const uint32_t column = start + lane;
        float sum[width] = {};
        if (column < p.n / width) {
#pragma unroll 4
            for (uint32_t row = first + warp; row < end; row += DEPTH) {
                const vector<KEY_X, width> values = load_vector<width>(x + uint64_t(row) * p.n, column);
#pragma unroll
                for (uint32_t i = 0; i < width; i++) sum[i] += values[i];
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < width; i++) sums[warp][i][lane] = sum[i];
        sync_block();
        for (uint32_t i = threadIdx.x; i < width * WARP && start * width + i < p.n; i += VARIANT_THREADS) {
            float total = 0.0f;
#pragma unroll
            for (uint32_t w = 0; w < DEPTH; w++) total += sums[w][i % width][i / width];
            ((float*)p.partial)[uint64_t(blockIdx.x) * p.n + start * width + i] = total;
        }
        sync_block(); // sums is reused
    }
}

KERNEL(column_sum_partial_params) {
    begin_early();
    if (p.n % WIDTH_OF(KEY_X) == 0)
        partial_sums<WIDTH_OF(KEY_X)>(p);
    else
        partial_sums<1>(p);
}
