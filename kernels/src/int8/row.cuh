// Register layout of a row of ROW elements over VARIANT_ROW_THREADS threads, from the one load through rotation and
// quantization to the one store. Four threads share 128 columns: vector v of thread t of the four is columns 32 v + 8 t
// to 32 v + 8 t + 7. So a warp loads whole sectors, and of the seven steps of a Walsh-Hadamard transform of 128 five
// stay within a thread. Two are shuffles. Each step is one rounding, in the order of the columns' bits: the same bits
// as on the host (host.rs).
#pragma once
#include "quantize.cuh"
#include "vector.cuh"

// Formats that rows are written in.
enum : uint32_t { I8, BF16_AND_I8 };
#ifndef KEY_OUT
#define KEY_OUT I8
#endif

enum : uint32_t {
    WIDTH = 8,         // columns of a vector: rows are whole rotation blocks, so whole vectors
    VECTORS = 4,       // vectors per thread in 128 columns
    SEGMENT = 128,     // columns per four threads
    SEGMENTS = (ROW + SEGMENT - 1) / SEGMENT,
    AT_A_TIME = VARIANT_ROW_THREADS / 4, // segments
    PER_THREAD = (SEGMENTS + AT_A_TIME - 1) / AT_A_TIME * VECTORS,
    ROWS = VARIANT_THREADS / VARIANT_ROW_THREADS, // rows that a CTA works on at a time
    LOWEST_BIT = ROW & (~ROW + 1),
    ROTATION = LOWEST_BIT < 128 ? LOWEST_BIT : 128, // columns rotated together
};
enum : bool {
    TOGETHER = true, // all threads of a CTA store their rows
    KEEPS_DENSE = KEY_OUT == BF16_AND_I8,
};

// Eight neighboring elements, loaded in vectors of 16 bytes and kept packed.
template <> struct vector<float, WIDTH> {
    vector<float, 4> halves[2];
    __device__ __forceinline__ float operator[](uint32_t i) const { return halves[i / 4][i % 4]; }
    static __device__ __forceinline__ vector of(const float (&v)[WIDTH]) {
        return {{{v[0], v[1], v[2], v[3]}, {v[4], v[5], v[6], v[7]}}};
    }
};
typedef vector<KEY_X, WIDTH> Vector;

// Returns this thread's row. Rows go from last to first: the rows that the previous GEMM has written last are still
// in L2, and those written last are what the next GEMM reads first. Past the first: no row.
__device__ __forceinline__ uint32_t row_of_thread(uint32_t rows) {
    return rows - 1 - (blockIdx.x * ROWS + threadIdx.x / VARIANT_ROW_THREADS);
}

// Returns the index in the row of this thread's vector `j`.
__device__ __forceinline__ uint32_t column_of(uint32_t j) {
    const uint32_t thread = threadIdx.x % VARIANT_ROW_THREADS;
    return (j / VECTORS * AT_A_TIME + thread / 4) * (SEGMENT / WIDTH) + j % VECTORS * 4 + thread % 4;
}

// True if the row has that vector. If rows are whole segments, a thread has all of its vectors of a segment, or none.
__device__ __forceinline__ bool inside(uint32_t j) {
    return column_of(ROW % SEGMENT == 0 ? j / VECTORS * VECTORS : j) < ROW / WIDTH;
}

// Loads this thread's share of a row; zeros beyond its end or if not `valid`.
__device__ __forceinline__ void load_row(Vector (&out)[PER_THREAD], const KEY_X* row, bool valid) {
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        out[j] = {};
        if (valid && inside(j)) out[j] = load_vector<WIDTH>(row, column_of(j));
    }
}

// Combines values of the threads of a row: lanes first, then warps in order. All threads of the CTA call it. `scratch`
// holds a word per warp, and may be reused after the next sync_block.
template <typename T, typename Combine>
__device__ __forceinline__ T combine_warps(T value, T start, T* scratch, Combine combine) {
    constexpr uint32_t warps = VARIANT_ROW_THREADS / WARP;
    if constexpr (warps > 1) {
        const uint32_t warp = threadIdx.x / WARP;
        if (threadIdx.x % WARP == 0) scratch[warp] = value;
        sync_block();
        value = start;
#pragma unroll
        for (uint32_t w = 0; w < warps; w++) value = combine(value, scratch[warp / warps * warps + w]);
    }
    return value;
}
__device__ __forceinline__ float row_sum(float value, float* scratch) {
    return combine_warps(group_sum(value), 0.0f, scratch, [](float a, float b) { return a + b; });
}
__device__ __forceinline__ uint32_t row_max(uint32_t value, uint32_t* scratch) {
    return combine_warps(warp_max(value), 0u, scratch, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}

// A thread's share of a row to be stored.
struct Share {
    float v[PER_THREAD][WIDTH];

    // Walsh-Hadamard transform of each block of ROTATION columns, in Sylvester's order, times 1 / ROTATION, so that no
    // sum overflows, instead of 1 / sqrt(ROTATION): the scale compensates. Returns the bits of the largest magnitude.
    __device__ __forceinline__ uint32_t rotate() {
        const float first = threadIdx.x & 1 ? -1.0f : 1.0f, second = threadIdx.x & 2 ? -1.0f : 1.0f;
        uint32_t largest = 0;
#pragma unroll
        for (uint32_t j0 = 0; j0 < PER_THREAD; j0 += VECTORS) {
#pragma unroll
            for (uint32_t j = j0; j < j0 + VECTORS; j++) {
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i += 2) butterfly(v[j][i], v[j][i + 1], 1.0f / ROTATION);
#pragma unroll
                for (uint32_t stride = 2; stride < WIDTH; stride *= 2)
#pragma unroll
                    for (uint32_t i = 0; i < WIDTH; i++)
                        if (!(i & stride)) butterfly(v[j][i], v[j][i + stride]);
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++) v[j][i] = fma_rn(v[j][i], first, shuffle_xor(v[j][i], 1));
                if (ROTATION >= 32)
#pragma unroll
                    for (uint32_t i = 0; i < WIDTH; i++) v[j][i] = fma_rn(v[j][i], second, shuffle_xor(v[j][i], 2));
            }
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                if (ROTATION >= 64) {
                    butterfly(v[j0][i], v[j0 + 1][i]);
                    butterfly(v[j0 + 2][i], v[j0 + 3][i]);
                }
                if (ROTATION >= 128) {
                    butterfly(v[j0][i], v[j0 + 2][i]);
                    butterfly(v[j0 + 1][i], v[j0 + 3][i]);
                }
            }
        }
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            const uint32_t own = largest_magnitude(v[j]);
            largest = largest > own ? largest : own;
        }
        return largest;
    }

    // Stores 8-bit values.
    __device__ __forceinline__ void store(uint8_t* q, const RowScale& row) const {
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            int8x8_t values = {};
            if (row.inverse != 0.0f) values = quantize(v[j], row);
            if (inside(j)) reinterpret_cast<int8x8_t*>(q)[column_of(j)] = values;
        }
    }
};

// A row to be stored: in bf16 at once, if it is kept, and in int8 when it is complete.
struct RowOut {
    Share share;
    KEY_X* dense;
    bool valid;

    __device__ __forceinline__ RowOut(KEY_X* dense, bool valid) : dense(dense), valid(valid) {}

    // Takes this thread's vector `j`. Rounds before quantization if the row is kept or `rounds`.
    template <bool rounds = KEEPS_DENSE> __device__ __forceinline__ void store(uint32_t j, const float (&values)[WIDTH]) {
        const Vector packed = Vector::of(values);
        if (KEEPS_DENSE && valid && inside(j)) reinterpret_cast<Vector*>(dense)[column_of(j)] = packed;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) share.v[j][i] = rounds ? packed[i] : values[i];
    }

    // Rotates the row, and stores its values and its scale. All threads of the CTA call it.
    template <typename Params> __device__ __forceinline__ void finish(const Params& p, uint32_t row) {
        __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
        const uint32_t largest = row_max(share.rotate(), scratch);
        if (!valid) return;
        const RowScale scale = row_scale<ROTATION>(largest);
        if (threadIdx.x % VARIANT_ROW_THREADS == 0) ((float*)p.scale)[row] = scale.scale;
        share.store((uint8_t*)p.q + uint64_t(row) * ROW, scale);
    }
};
