// A row of ROW values, rotated and quantised where it lies: in the registers of VARIANT_ROW_THREADS threads, from the one load
// to the one store.
// Four threads share 128 columns: vector v of thread t of the four is columns 32 v + 8 t to 32 v + 8 t + 7. So a warp loads
// whole sectors, and of the seven steps of a Walsh-Hadamard transform of 128 five stay within a thread. Two are shuffles.
// Each step is one rounding, in the order of the columns' bits: the same bits as on the host (host.rs).
#pragma once
#include "int8.h"
#include "quantize.cuh"
#include "vector.cuh"

enum : uint32_t {
    WIDTH = 8,         // columns of a vector: rows are whole rotation blocks, so whole vectors
    VECTORS = 4,       // of a thread in 128 columns
    SEGMENT = 128,     // columns of four threads
    SEGMENTS = (ROW + SEGMENT - 1) / SEGMENT,
    AT_A_TIME = VARIANT_ROW_THREADS / 4, // segments
    ROUNDS = (SEGMENTS + AT_A_TIME - 1) / AT_A_TIME,
    ROWS = VARIANT_THREADS / VARIANT_ROW_THREADS, // rows that a CTA works on at a time
    LOWEST_BIT = ROW & (~ROW + 1),
    ROTATION = LOWEST_BIT < 128 ? LOWEST_BIT : 128, // columns that are rotated together
};

// Eight neighbouring elements, loaded in vectors of 16 bytes and kept packed.
template <typename T> struct Eight {
    vector<T, WIDTH_OF(T)> parts[WIDTH / WIDTH_OF(T)];
    __device__ __forceinline__ float operator[](uint32_t i) const { return parts[i / WIDTH_OF(T)][i % WIDTH_OF(T)]; }
};

// Rows go from the last to the first: what the product before has written last is still in L2, and what is written last is what
// the product after reads first.
__device__ __forceinline__ uint32_t row_from_last() { return blockIdx.x * ROWS + threadIdx.x / VARIANT_ROW_THREADS; }

// A thread's share of a row.
struct Share {
    float v[ROUNDS][VECTORS][WIDTH];
};

// First column of a vector of this thread's share.
__device__ __forceinline__ uint32_t column_of(uint32_t round, uint32_t vector) {
    const uint32_t thread = threadIdx.x % VARIANT_ROW_THREADS;
    return (round * AT_A_TIME + thread / 4) * SEGMENT + vector * 32 + thread % 4 * WIDTH;
}

// Whether a row has it. Where rows are whole segments a thread has all of its vectors of a round, or none.
__device__ __forceinline__ bool inside(uint32_t round, uint32_t vector) {
    return column_of(round, ROW % SEGMENT == 0 ? 0 : vector) < ROW;
}

// Rounds a vector of results to bf16: stores it in a row, if it is `there`, and gives what was stored.
__device__ __forceinline__ void store_rounded(float (&rounded)[WIDTH], const float (&values)[WIDTH], bf16* row, uint32_t column,
                                              bool there) {
    const auto packed = vector<bf16, WIDTH>::of(values);
    if (there) *reinterpret_cast<vector<bf16, WIDTH>*>(row + column) = packed;
#pragma unroll
    for (uint32_t i = 0; i < WIDTH; i++) rounded[i] = packed[i];
}

// Sum over the threads of a row, lanes first, then warps in their order. All threads of the CTA call it. `scratch` holds a word
// a warp, and may be used again after the next sync_block.
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

// The largest, likewise.
__device__ __forceinline__ uint32_t row_max(uint32_t value, uint32_t* scratch) {
    value = warp_max(value);
    constexpr uint32_t warps = VARIANT_ROW_THREADS / WARP;
    if constexpr (warps > 1) {
        const uint32_t warp = threadIdx.x / WARP;
        if (threadIdx.x % WARP == 0) scratch[warp] = value;
        sync_block();
        value = 0;
#pragma unroll
        for (uint32_t w = 0; w < warps; w++) {
            const uint32_t other = scratch[warp / warps * warps + w];
            value = value > other ? value : other;
        }
    }
    return value;
}

// Walsh-Hadamard transform of each block of ROTATION columns, in Sylvester's order, times 1 / ROTATION, so that no sum overflows, in
// place of 1 / sqrt(ROTATION), which the scale makes up for.
__device__ __forceinline__ void rotate(Share& share) {
    const float first = threadIdx.x & 1 ? -1.0f : 1.0f, second = threadIdx.x & 2 ? -1.0f : 1.0f;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++) {
        float(&v)[VECTORS][WIDTH] = share.v[round];
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
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
                butterfly(v[0][i], v[1][i]);
                butterfly(v[2][i], v[3][i]);
            }
            if (ROTATION >= 128) {
                butterfly(v[0][i], v[2][i]);
                butterfly(v[1][i], v[3][i]);
            }
        }
    }
}

// The bits of the largest magnitude of a share.
__device__ __forceinline__ uint32_t largest_of(const Share& share) {
    uint32_t largest = 0;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            const uint32_t own = largest_magnitude(share.v[round][j]);
            largest = largest > own ? largest : own;
        }
    return largest;
}

// Stores a share's values.
__device__ __forceinline__ void store_values(const Share& share, uint8_t* q, const RowScale& row) {
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            int8x8_t values = {};
            if (row.inverse != 0.0f) values = quantize(share.v[round][j], row);
            if (inside(round, j)) *reinterpret_cast<int8x8_t*>(q + column_of(round, j)) = values;
        }
}

// Rotates a row and stores its values and its scale. All threads of the CTA call it.
__device__ __forceinline__ void store_quantized(Share& share, uint8_t* q, float* scale, bool valid, uint32_t* scratch) {
    rotate(share);
    const uint32_t largest = row_max(largest_of(share), scratch);
    if (!valid) return;
    const RowScale row = row_scale<ROTATION>(largest);
    if (threadIdx.x % VARIANT_ROW_THREADS == 0) *scale = row.scale;
    store_values(share, q, row);
}
