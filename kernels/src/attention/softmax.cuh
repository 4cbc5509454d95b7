// The online softmax of the tensor-core attention kernels (Milakov and Gimelshein, 2018; Dao, "FlashAttention-2",
// 2023), in the accumulator layout of mma and wgmma: a thread holds two rows, `half` 0 and 1, a quarter of each; lanes
// 4 g .. 4 g + 3 hold a row together. Exponentials are to base 2, of scores scaled by scale * log2(e).
#pragma once
#include "attention.h"
#include "attention/sequences.cuh"
#include "attention/window.cuh"
#include "mma.cuh"
#include "shared.cuh"
#include "vector.cuh"

// Running statistics of a thread's two rows, and the factor for the output accumulators before a tile is
// added.
struct OnlineSoftmax {
    float row_max[2] = {NEGATIVE_INFINITY, NEGATIVE_INFINITY}, row_sum[2] = {}; // row_sum: this thread's quarter
    float rescale[2];

    // Replaces a tile of scores by probabilities, relative to the running maximum. Without a window key 0 is in the
    // first tile and visible to every row, so the maximum is never -inf; before the window of a row it is, and nothing
    // changes.
    template <uint32_t n> __device__ __forceinline__ void update(float (&s)[n][4], uint32_t half, float scale_log2) {
        float tile_max = row_max[half];
#pragma unroll
        for (uint32_t j = 0; j < n; j++) tile_max = fmaxf(tile_max, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
        tile_max = group_max<4>(tile_max);
#ifdef KEY_WINDOW
        const float row_before = row_max[half];
        row_max[half] = tile_max;
        if (tile_max == NEGATIVE_INFINITY) tile_max = 0.0f;
        rescale[half] = exp2_ftz((row_before - tile_max) * scale_log2);
#else
        rescale[half] = exp2_ftz((row_max[half] - tile_max) * scale_log2);
        row_max[half] = tile_max;
#endif
        const float shift = tile_max * scale_log2;
        float tile_sum = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < n; j++)
#pragma unroll
            for (uint32_t e = 2 * half; e < 2 * half + 2; e++) {
                s[j][e] = exp2_ftz(fmaf(s[j][e], scale_log2, -shift));
                tile_sum += s[j][e];
            }
        row_sum[half] = fmaf(row_sum[half], rescale[half], tile_sum);
    }

    // Divides an output row by the sum of its probabilities, after the last tile; then its log-sum-exp is valid.
    template <uint32_t n> __device__ __forceinline__ void finish(float (&o)[n][4], uint32_t half) {
        row_sum[half] = group_sum<4>(row_sum[half]);
        const float inverse = reciprocal(row_sum[half]);
#pragma unroll
        for (uint32_t j = 0; j < n; j++) o[j][2 * half] *= inverse, o[j][2 * half + 1] *= inverse;
    }
    __device__ __forceinline__ float log_sum_exp(uint32_t half, float scale) const {
        return fmaf(row_max[half], scale, logf(row_sum[half]));
    }
};

// Operand a of step `step` of the second GEMM: columns 16 * step .. of probabilities, rounded to bf16.
template <uint32_t n>
__device__ __forceinline__ void pack_a(uint32_t (&a)[4], const float (&d)[n][4], uint32_t step) {
    a[0] = pack_bf16x2(d[2 * step][0], d[2 * step][1]);
    a[1] = pack_bf16x2(d[2 * step][2], d[2 * step][3]);
    a[2] = pack_bf16x2(d[2 * step + 1][0], d[2 * step + 1][1]);
    a[3] = pack_bf16x2(d[2 * step + 1][2], d[2 * step + 1][3]);
}
