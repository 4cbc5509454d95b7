// Epilogues: store the accumulators of a tile from the consumer warps' registers, rounded to bf16 in rows of 16 bytes
// through a warp's own shared memory, or in f32. A chunk is 16 rows of CHUNK columns: v[q] holds the q-th eight of them
// in the layout of wgmma. No store waits for an earlier one. One that DEFERS rounds a tile at once, which halves its
// registers, and stores it while the wgmma of the next tile run.
#pragma once
#include "gemm/wgmma/mainloop.cuh"

// bf16, with a bias per column and a residual of C's shape added before the one rounding. `paired`: see gemm().
template <bool has_bias, bool has_residual, bool paired = false> struct Bf16Epilogue {
    enum : uint32_t {
        CHUNK = 32,
        CHUNKS = TILE_N / CHUNK,
        SLOT = 16 * CHUNK * 2,
        BIASES = 2 * SLOT, // where the tile's biases are in the scratch
        SCRATCH = BIASES + (has_bias ? TILE_N * 2 : 0),
        PART = paired ? TILE_N / 2 : TILE_N,
    };
    enum : bool { PAIRED = paired, DEFERS = true };
    typedef float Sum;
    const bf16 *bias, *residual;
    bf16* out;
    uint32_t rows, columns, scratch;
    uint32_t column; // column of the lane's 16 bytes in the first chunk
    uint64_t at; // their place in C, elements
    bool upper, lower; // true if its two rows exist
    uint4_t added[has_residual ? 2 * CHUNKS : 1];

    static __device__ __forceinline__ uint32_t lane() { return threadIdx.x % WARP; }

    // Turns to an expert, whose rows end before `last`.
    __device__ __forceinline__ void enter(uint32_t last, uint32_t) { rows = last; }
    __device__ __forceinline__ void begin(uint32_t first_row, uint32_t first_column) {
        const uint32_t row = first_row + lane() / 4;
        column = first_column + lane() % 4 * 8;
        at = uint64_t(row) * columns + column;
        upper = row < rows;
        lower = row + 8 < rows;
        if (has_bias) {
            const uint32_t i = lane() * 8, j = first_column + i % PART;
            if (i < TILE_N)
                store_shared(scratch + BIASES + i * 2,
                             j < columns ? *reinterpret_cast<const uint4_t*>(bias + i / PART * columns + j)
                                         : uint4_t{});
            sync_warp();
        }
        if (has_residual)
#pragma unroll
            for (uint32_t c = 0; c < CHUNKS; c++) {
                const bool inside = column + c * CHUNK < columns;
                const uint4_t* from = reinterpret_cast<const uint4_t*>(residual + at + c * CHUNK);
                added[2 * c] = upper && inside ? *from : uint4_t{};
                added[2 * c + 1] = lower && inside ? from[columns] : uint4_t{}; // eight rows are `columns` vectors
            }
    }

    // Where a chunk's 16 bytes of the lane are in the warp's shared memory, and those 8 rows below.
    __device__ __forceinline__ uint32_t slot(uint32_t c) const {
        return scratch + c % 2 * SLOT + lane() / 4 * 64 + ((lane() ^ lane() >> 3) % 4 << 4);
    }
    // Where the lane's row of four 8 x 8 matrices is: of the left or right half of a chunk.
    __device__ __forceinline__ uint32_t matrices(uint32_t c, uint32_t half) const {
        const uint32_t row = lane() % 16;
        return (scratch + c % 2 * SLOT + row * 64 + ((lane() / 16 ^ row >> 1) % 4 << 4)) ^ half << 5;
    }

    // Rounds a chunk to pairs of columns: those of an eight's upper and lower row.
    __device__ __forceinline__ void round(uint32_t c, float (&v)[4][4], uint32_t (&pairs)[4][2]) const {
        if (has_bias)
#pragma unroll
            for (uint32_t q = 0; q < 4; q++) {
                const uint32_t pair = load_shared_word(scratch + BIASES + ((c * 4 + q) * 8 + lane() % 4 * 2) * 2);
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) v[q][e] += unpack_bf16x2(pair, e);
            }
        if (has_residual) {
            store_shared(slot(c), added[2 * c]);
            store_shared(slot(c) + 8 * 64, added[2 * c + 1]);
            sync_warp();
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t r[4];
                ldmatrix_x4(r, matrices(c, half));
#pragma unroll
                for (uint32_t e = 0; e < 8; e++) v[half * 2 + e / 4][e % 4] += unpack_bf16x2(r[e / 2], e);
            }
        }
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            pairs[q][0] = pack_bf16x2(v[q][0], v[q][1]);
            pairs[q][1] = pack_bf16x2(v[q][2], v[q][3]);
        }
    }

    __device__ __forceinline__ void store(uint32_t c, const uint32_t (&pairs)[4][2]) const {
        const uint32_t mine = slot(c);
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t(&left)[2] = pairs[half * 2], (&right)[2] = pairs[half * 2 + 1];
            stmatrix_x4(matrices(c, half), left[0], left[1], right[0], right[1]);
        }
        sync_warp();
        if (column + c * CHUNK < columns) {
            uint4_t* to = reinterpret_cast<uint4_t*>(out + at + c * CHUNK);
            if (upper) *to = load_shared(mine);
            if (lower) to[columns] = load_shared(mine + 8 * 64);
        }
    }
};

// f32, overwriting C or added to it. Each element is added to once, so there is no order to depend on.
struct F32Epilogue {
    enum : uint32_t { CHUNK = 32, SLOT = 16 * CHUNK * 4, SCRATCH = 2 * SLOT };
    enum : bool { PAIRED = false, DEFERS = false };
    typedef float Sum;
    float* out;
    uint32_t rows, columns, scratch;
    bool accumulate;
    uint32_t row, column; // place of the lane's 16 bytes in the first chunk

    __device__ __forceinline__ void begin(uint32_t first_row, uint32_t first_column) {
        row = first_row + threadIdx.x % WARP / 8;
        column = first_column + threadIdx.x % 8 * 4;
    }
    __device__ __forceinline__ void store(uint32_t c, const float (&v)[4][4]) const {
        const uint32_t lane = threadIdx.x % WARP, group = lane / 4, member = lane % 4;
        const uint32_t slot = scratch + c % 2 * SLOT; // rows of 128 bytes, 16 of them at (i ^ row) % 8
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint32_t pair = slot + group * 128 + ((q * 2 + member / 2) ^ group) * 16 + member % 2 * 8;
            store_shared(pair, v[q][0], v[q][1]);
            store_shared(pair + 8 * 128, v[q][2], v[q][3]);
        }
        sync_warp();
        const uint32_t j = column + c * CHUNK;
#pragma unroll
        for (uint32_t four = 0; four < 4; four++) {
            const uint32_t within = four * 4 + lane / 8, i = row + four * 4;
            const uint4_t sums = load_shared(slot + within * 128 + (lane ^ within) % 8 * 16);
            if (i >= rows || j >= columns) continue;
            float* to = out + uint64_t(i) * columns + j;
            if (accumulate) red_add4(to, sums);
            else *reinterpret_cast<uint4_t*>(to) = sums;
        }
    }
};
