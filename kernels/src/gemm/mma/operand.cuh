// One operand of a GEMM on tensor cores: M(i, r), i along an edge of C and r along K.
// Its k-tiles pass through shared memory: global to shared memory by cp.async of 16 bytes (chunks), shared memory to
// fragments by ldmatrix, without bank conflicts.
//
// K-major (r runs in memory): a row of TILE_K elements for every i. MN-major (i runs in memory): slabs of 64 i, in each
// a row of 128 bytes for every r; ldmatrix transposes on the way. Either way the chunks of a row are swizzled: permuted
// by exclusive or with the row's number.
#pragma once
#include "mma.cuh"

// Enumerators, for the reason in device.cuh.
enum : uint32_t {
    THREADS = VARIANT_THREADS,
    TILE_K = VARIANT_TILE_K,
    CHUNK = 8, // elements of 16 bytes
};

// Operand of mma that a fragment is for: its four 8 x 8 matrices follow each other along i first for a, along r for b.
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

    const unsigned char* tile_at; // next k-tile, equal for the whole CTA: threads add 32-bit offsets
    uint32_t from[ROUNDS];        // offsets of this thread's chunks, bytes
    uint32_t step_bytes;          // from one k-tile to the next
    int left;                     // r left from the next k-tile on
    int own_r;                    // r of this thread's first chunk in a k-tile
    uint32_t edge;                // MN-major: i left from this thread's first chunk on
    uint32_t write;               // offset in a stage of this thread's first chunk
    uint32_t read;                // offset in a stage of the chunk this lane addresses for the warp's first fragment

    static __device__ __forceinline__ uint32_t swizzle(uint32_t row, uint32_t chunk) {
        // The 32 banks hold one row of 128 bytes, or two of 64.
        const uint32_t key = ROW_CHUNKS == 8 ? row % 8 : row / 2 % 4;
        return row * ROW_BYTES + (chunk ^ key) * 16;
    }

    // Starts at tile row i0; the warp's share starts at `warp` within the tile.
    __device__ __forceinline__ Operand(const void* data, uint32_t stride, uint32_t extent, uint32_t depth, uint32_t i0,
                                     uint32_t warp) {
        const uint32_t own_row = threadIdx.x / ROW_CHUNKS, own_chunk = threadIdx.x % ROW_CHUNKS;
        const uint32_t row_bytes = stride * sizeof(bf16), rest = extent - i0;
        tile_at = (const unsigned char*)data + (mn ? uint64_t(i0) * sizeof(bf16) : uint64_t(i0) * row_bytes);
        step_bytes = mn ? TILE_K * row_bytes : TILE_K * sizeof(bf16);
        left = int(depth);
        own_r = mn ? own_row : own_chunk * CHUNK;
        edge = own_chunk * CHUNK < rest ? rest - own_chunk * CHUNK : 0;
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++) {
            // Rows past the edge repeat the last row: their results are never stored.
            const uint32_t at = own_row + round * STEP, inside = mn || at < rest ? at : rest - 1;
            from[round] = inside * row_bytes + own_chunk * 16;
        }
        write = swizzle(own_row, own_chunk);
        const uint32_t matrix = threadIdx.x % WARP / 8, line = threadIdx.x % 8;
        const uint32_t along_i = fragment == Fragment::a ? matrix % 2 : matrix / 2;
        const uint32_t along_r = fragment == Fragment::a ? matrix / 2 : matrix % 2;
        read = mn ? warp / 64 * SLAB_BYTES + swizzle(along_r * 8 + line, warp % 64 / CHUNK + along_i)
                          : swizzle(warp + along_i * 8 + line, along_r);
    }

    // Starts the copies of the next k-tile. Past the depth, and past the edge of an MN-major operand, they write zeros.
    __device__ __forceinline__ void copy(uint32_t stage) {
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++) {
            const bool deep = own_r + int(mn ? round * STEP : 0) < left;
#pragma unroll
            for (uint32_t slab = 0; slab < SLABS; slab++)
                cp_async(stage + write + slab * SLAB_BYTES + round * STEP * ROW_BYTES,
                         tile_at + from[round] + slab * 128, deep && (!mn || slab * 64 < edge));
        }
        tile_at += step_bytes;
        left -= TILE_K;
    }

    // Loads the fragment of 16 i, the warp's `block`, and 16 r, the k-tile's `step`.
    __device__ __forceinline__ void
    load(uint32_t (&registers)[4], uint32_t stage, uint32_t block, uint32_t step) const {
        if (mn) {
            const uint32_t at = (stage + read) ^ (block % 4 * 32);
            ldmatrix_x4_trans(registers, at + block / 4 * SLAB_BYTES + step * 16 * ROW_BYTES);
        } else {
            ldmatrix_x4(registers, stage + (read ^ (step * 32)) + block * 16 * ROW_BYTES);
        }
    }
};
