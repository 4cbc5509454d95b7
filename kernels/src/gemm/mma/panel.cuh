// One operand of a product on tensor cores: M(i, r), i along a side of the result and r along the sum.
// Slices of it pass through shared memory: global memory to shared in copies of 16 bytes (chunks) that bypass
// registers, shared memory to fragments by ldmatrix, and no two rows that meet in an access share a bank.
//
// Straight (r runs in memory): shared rows of a slice, tile rows of them. Transposed (i runs in memory): panels of
// 64 i, each a row of 128 bytes for every r; ldmatrix transposes on the way. Either way the chunks of a row are
// permuted by exclusive or with the row's number.
#pragma once
#include "mma.cuh"

// Enumerators for the reason device.cuh gives.
enum : uint32_t {
    THREADS = VARIANT_THREADS,
    TILE_K = VARIANT_TILE_K,
    CHUNK = 8, // elements of 16 bytes
};

// In which order the four 8 x 8 matrices of a fragment follow each other: first along i as mma takes a, or along r as
// it takes b.
enum class Side { a, b };

template <uint32_t tile, bool transposed, Side side> struct Panel {
    enum : uint32_t {
        BYTES = tile * TILE_K * sizeof(bf16),
        ROW_CHUNKS = transposed ? 8 : TILE_K / CHUNK,
        ROW_BYTES = ROW_CHUNKS * 16,
        STEP = THREADS / ROW_CHUNKS, // rows that one round of copies covers
        ROUNDS = (transposed ? TILE_K : tile) / STEP,
        PANELS = transposed ? tile / 64 : 1,
        PANEL_BYTES = TILE_K * ROW_BYTES, // transposed
    };
    static_assert((transposed ? TILE_K : tile) % STEP == 0 && STEP % 8 == 0, "whole rounds of copies");
    static_assert(!transposed || tile % 64 == 0, "whole panels");

    const bf16* next; // this thread's first chunk of the next slice
    uint64_t row;     // elements between rows
    uint32_t edge;    // i left from this thread's first chunk on
    uint32_t left;    // r left from this thread's first chunk of the next slice on
    uint32_t write;   // offset in a slice of this thread's first chunk
    uint32_t read;    // offset in a slice of the chunk this lane addresses for the warp's first fragment

    static __device__ __forceinline__ uint32_t swizzle(uint32_t row, uint32_t chunk) {
        // A line of all banks holds one row of 128 bytes, or two of 64.
        const uint32_t key = ROW_CHUNKS == 8 ? row % 8 : row / 2 % 4;
        return row * ROW_BYTES + (chunk ^ key) * 16;
    }

    // The tile starts at i0, the warp's share at `warp` within it.
    __device__ __forceinline__ Panel(const void* data, uint32_t stride, uint32_t extent, uint32_t depth, uint32_t i0,
                                     uint32_t warp) {
        const uint32_t own_row = threadIdx.x / ROW_CHUNKS, own_chunk = threadIdx.x % ROW_CHUNKS;
        const uint32_t i = i0 + (transposed ? own_chunk * CHUNK : own_row);
        const uint32_t r = transposed ? own_row : own_chunk * CHUNK;
        row = stride;
        next = (const bf16*)data + (transposed ? r * row + i : i * row + r);
        edge = i < extent ? extent - i : 0;
        left = r < depth ? depth - r : 0;
        write = swizzle(own_row, own_chunk);
        const uint32_t matrix = threadIdx.x % WARP / 8, line = threadIdx.x % 8;
        const uint32_t along_i = side == Side::a ? matrix % 2 : matrix / 2;
        const uint32_t along_r = side == Side::a ? matrix / 2 : matrix % 2;
        read = transposed ? warp / 64 * PANEL_BYTES + swizzle(along_r * 8 + line, warp % 64 / CHUNK + along_i)
                          : swizzle(warp + along_i * 8 + line, along_r);
    }

    // Starts the copies of the next slice. Past the matrix they write zeros.
    __device__ __forceinline__ void fetch(uint32_t slice) {
#pragma unroll
        for (uint32_t panel = 0; panel < PANELS; panel++)
#pragma unroll
            for (uint32_t round = 0; round < ROUNDS; round++) {
                const uint32_t i = transposed ? panel * 64 : round * STEP, r = transposed ? round * STEP : 0;
                cp_async(slice + write + panel * PANEL_BYTES + round * STEP * ROW_BYTES,
                           next + round * STEP * row + panel * 64, i < edge && r < left);
            }
        next += transposed ? TILE_K * row : TILE_K;
        left = left > TILE_K ? left - TILE_K : 0;
    }

    // The fragment of 16 i, the warp's `block`, and 16 r, the slice's `step`.
    __device__ __forceinline__ void load(uint32_t (&fragment)[4], uint32_t slice, uint32_t block, uint32_t step) const {
        if (transposed) {
            const uint32_t at = (slice + read) ^ (block % 4 * 32);
            ldmatrix_x4_trans(fragment, at + block / 4 * PANEL_BYTES + step * 16 * ROW_BYTES);
        } else {
            ldmatrix_x4(fragment, ((slice + read) ^ (step * 32)) + block * 16 * ROW_BYTES);
        }
    }
};
