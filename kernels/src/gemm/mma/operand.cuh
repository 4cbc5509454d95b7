// One operand of a GEMM on tensor cores: M(i, r), i along an edge of C and r along K.
// Its k-tiles pass through shared memory: global to shared memory by cp.async of 16 bytes (chunks), shared memory to
// fragments by ldmatrix, without bank conflicts.
//
// K-major (r runs in memory): a row of TILE_K elements for every i. MN-major (i runs in memory): slabs of 64 i, in each a
// row of 128 bytes for every r; ldmatrix transposes on the way. Either way the chunks of a row are swizzled: permuted by
// exclusive or with the row's number.
#pragma once
#include "mma.cuh"

// Enumerators for the reason device.cuh gives.
enum : uint32_t {
    THREADS = VARIANT_THREADS,
    TILE_K = VARIANT_TILE_K,
    CHUNK = 8, // elements of 16 bytes
};

// Which operand of mma a fragment is for: its four 8 x 8 matrices follow each other along i first for a, along r for b.
enum class Fragment { a, b };

template <uint32_t tile, bool mn, Fragment fragment> struct Operand {
    enum : uint32_t {
        BYTES = tile * TILE_K * sizeof(bf16),
        ROW_CHUNKS = mn ? 8 : TILE_K / CHUNK,
        ROW_BYTES = ROW_CHUNKS * 16,
        STEP = THREADS / ROW_CHUNKS, // rows that one round of copies covers
        ROUNDS = (mn ? TILE_K : tile) / STEP,
        SLABS = mn ? tile / 64 : 1,
        SLAB_BYTES = TILE_K * ROW_BYTES, // MN-major
    };
    static_assert((mn ? TILE_K : tile) % STEP == 0 && STEP % 8 == 0, "whole rounds of copies");
    static_assert(!mn || tile % 64 == 0, "whole slabs");

    const bf16* next; // this thread's first chunk of the next k-tile
    uint64_t row;     // elements between rows
    uint32_t edge;    // i left from this thread's first chunk on
    uint32_t left;    // r left from this thread's first chunk of the next k-tile on
    uint32_t write;   // offset in a stage of this thread's first chunk
    uint32_t read;    // offset in a stage of the chunk this lane addresses for the warp's first fragment

    static __device__ __forceinline__ uint32_t swizzle(uint32_t row, uint32_t chunk) {
        // The 32 banks hold one row of 128 bytes, or two of 64.
        const uint32_t key = ROW_CHUNKS == 8 ? row % 8 : row / 2 % 4;
        return row * ROW_BYTES + (chunk ^ key) * 16;
    }

    // The tile starts at i0, the warp's share at `warp` within it.
    __device__ __forceinline__ Operand(const void* data, uint32_t stride, uint32_t extent, uint32_t depth, uint32_t i0,
                                     uint32_t warp) {
        const uint32_t own_row = threadIdx.x / ROW_CHUNKS, own_chunk = threadIdx.x % ROW_CHUNKS;
        const uint32_t i = i0 + (mn ? own_chunk * CHUNK : own_row);
        const uint32_t r = mn ? own_row : own_chunk * CHUNK;
        row = stride;
        next = (const bf16*)data + (mn ? r * row + i : i * row + r);
        edge = i < extent ? extent - i : 0;
        left = r < depth ? depth - r : 0;
        write = swizzle(own_row, own_chunk);
        const uint32_t matrix = threadIdx.x % WARP / 8, line = threadIdx.x % 8;
        const uint32_t along_i = fragment == Fragment::a ? matrix % 2 : matrix / 2;
        const uint32_t along_r = fragment == Fragment::a ? matrix / 2 : matrix % 2;
        read = mn ? warp / 64 * SLAB_BYTES + swizzle(along_r * 8 + line, warp % 64 / CHUNK + along_i)
                          : swizzle(warp + along_i * 8 + line, along_r);
    }

    // Starts the copies of the next k-tile. Past the matrix they write zeros.
    __device__ __forceinline__ void copy(uint32_t stage) {
#pragma unroll
        for (uint32_t slab = 0; slab < SLABS; slab++)
#pragma unroll
            for (uint32_t round = 0; round < ROUNDS; round++) {
                const uint32_t i = mn ? slab * 64 : round * STEP, r = mn ? round * STEP : 0;
                cp_async(stage + write + slab * SLAB_BYTES + round * STEP * ROW_BYTES,
                           next + round * STEP * row + slab * 64, i < edge && r < left);
            }
        next += mn ? TILE_K * row : TILE_K;
        left = left > TILE_K ? left - TILE_K : 0;
    }

    // The fragment of 16 i, the warp's `block`, and 16 r, the k-tile's `step`.
    __device__ __forceinline__ void load(uint32_t (&registers)[4], uint32_t stage, uint32_t block, uint32_t step) const {
        if (mn) {
            const uint32_t at = (stage + read) ^ (block % 4 * 32);
            ldmatrix_x4_trans(registers, at + block / 4 * SLAB_BYTES + step * 16 * ROW_BYTES);
        } else {
            ldmatrix_x4(registers, ((stage + read) ^ (step * 32)) + block * 16 * ROW_BYTES);
        }
    }
};
