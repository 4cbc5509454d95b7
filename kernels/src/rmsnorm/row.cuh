// Layout of a row of KEY_H elements over VARIANT_ROW_THREADS threads, without quantization: vectors of 16 bytes, or
// single elements where rows are not aligned, kept packed in registers from the one load to the last use. A warp per
// row, several rows per CTA, as long as a thread's share stays small; else a CTA per row.
#pragma once
#include "vector.cuh"

enum : uint32_t {
    WIDTH = KEY_H % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1,
    COLUMNS = KEY_H / WIDTH, // vectors in a row
    PER_THREAD = (COLUMNS + VARIANT_ROW_THREADS - 1) / VARIANT_ROW_THREADS,
    ROWS = VARIANT_THREADS / VARIANT_ROW_THREADS, // rows per CTA at a time
};
enum : bool { TOGETHER = false, KEEPS_DENSE = true }; // a thread stores its own, independently of the others
typedef vector<KEY_X, WIDTH> Vector;

// Returns the row of this thread, of `rows`.
#define row_of_thread(rows) (blockIdx.x * ROWS + threadIdx.x / VARIANT_ROW_THREADS)

// The thread's vector j is vector j * VARIANT_ROW_THREADS + lane of the row, if that exists.
__device__ __forceinline__ uint32_t column_of(uint32_t j) {
    return j * VARIANT_ROW_THREADS + threadIdx.x % VARIANT_ROW_THREADS;
}

#define inside(j) (column_of(j) < COLUMNS)

// Loads this thread's share of a row; zeros beyond its end or if not `valid`.
__device__ __forceinline__ void load_row(Vector (&out)[PER_THREAD], const KEY_X* row, bool valid) {
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        out[j] = {};
        if (valid && inside(j)) out[j] = load_vector<WIDTH>(row, column_of(j));
    }
}

// Sums over the threads of a row; all threads of the CTA call it. `scratch` holds one float per warp and may be reused
// after the next sync_block.
__device__ __forceinline__ float row_sum(float value, float* scratch) {
    value = group_sum(value);
    constexpr uint32_t warps = VARIANT_ROW_THREADS / WARP;
    if constexpr (warps > 1) {
        const uint32_t warp = threadIdx.x / WARP;
        if (threadIdx.x % WARP == 0) scratch[warp] = value;
        sync_block();
        value = 0.0f;
#pragma unroll
        for (uint32_t w = 0; w < warps; w++) value += scratch[warp / warps * warps + w];
    }
    return value;
}

// A row to be stored, each vector at once.
struct RowOut {
    KEY_X* row;

    __device__ __forceinline__ RowOut(KEY_X* row, bool) : row(row) {}

    // Takes this thread's vector `j`.
    __device__ __forceinline__ void store(uint32_t j, const float (&values)[WIDTH]) {
        if (inside(j)) store_vector(row, column_of(j), values);
    }
    template <typename Params> __device__ __forceinline__ void finish(const Params&, uint32_t) {}
};
