// Matrices of bf16 in shared memory and their fragments, for mma.sync. A row has 64 or 128 elements; its chunks of 16
// bytes are permuted by the row's number, so that ldmatrix of eight rows is free of bank conflicts.
#pragma once
#include "delta_rule/chunk.cuh"
#include "mma.cuh"
#include "shared.cuh"

template <uint32_t columns> struct Tile {
    enum : uint32_t { CHUNKS = columns / 8 };
    uint32_t base; // shared memory

    static __device__ constexpr uint32_t bytes(uint32_t rows) { return rows * columns * 2; }

    // Returns the address of 8 elements from column 8 * `chunk`.
    __device__ __forceinline__ uint32_t at(uint32_t row, uint32_t chunk) const {
        return base + row * (columns * 2) + (chunk ^ row % 8) * 16;
    }

    // Starts copying `rows` of `all` rows, `stride` elements apart; those behind the last become zeros. All threads of
    // the CTA do. No copy keeps its addresses for the next.
    template <uint32_t all>
    __device__ __forceinline__ void copy(const bf16* data, uint32_t stride, uint32_t rows) const {
        static_assert(all % (VARIANT_THREADS / CHUNKS) == 0, "threads copy as many vectors");
        const uint32_t thread = opaque(threadIdx.x), own = thread / CHUNKS, chunk = thread % CHUNKS;
        data += own * stride + chunk * 8;
#pragma unroll
        for (uint32_t i = 0; i < all; i += VARIANT_THREADS / CHUNKS)
            cp_async(at(own + i, chunk), data + i * stride, own + i < rows);
    }

    // Operand a: rows from `row`, depth from column 16 * `step`.
    __device__ __forceinline__ void load_a(uint32_t (&a)[4], uint32_t row, uint32_t step) const {
        const uint32_t lane = threadIdx.x % WARP;
        ldmatrix_x4(a, at(row + lane % 16, 2 * step + lane / 16));
    }
    // Operand a of the transpose: its rows are columns from 8 * `chunk`, depth is rows from `row`.
    __device__ __forceinline__ void load_a_transposed(uint32_t (&a)[4], uint32_t row, uint32_t chunk) const {
        const uint32_t lane = threadIdx.x % WARP;
        ldmatrix_x4_trans(a, at(row + lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2));
    }
    // Operand b of the transpose: 16 columns are rows from `row` ({b[0], b[1]} the first 8), depth from column
    // 16 * `step`.
    __device__ __forceinline__ void load_b_transposed(uint32_t (&b)[4], uint32_t row, uint32_t step) const {
        const uint32_t lane = threadIdx.x % WARP;
        ldmatrix_x4(b, at(row + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
    }
    // Operand b: depth is rows from `row`, 16 columns from 8 * `chunk` ({b[0], b[1]} the first 8).
    __device__ __forceinline__ void load_b(uint32_t (&b)[4], uint32_t row, uint32_t chunk) const {
        const uint32_t lane = threadIdx.x % WARP;
        ldmatrix_x4_trans(b, at(row + lane % 16, chunk + lane / 16));
    }

    // Stores two neighboring elements of a row.
    __device__ __forceinline__ void store(uint32_t row, uint32_t column, float first, float second) const {
        store_shared(at(row, column / 8) + column % 8 * 2, pack_bf16x2(first, second));
    }

    // Returns two neighboring elements of a row, packed.
    __device__ __forceinline__ uint32_t load(uint32_t row, uint32_t column) const {
        return load_shared_word(at(row, column / 8) + column % 8 * 2);
    }

    // Copies `rows` of `all` rows to memory, `stride` elements apart; all threads of the CTA do, behind a sync_block.
    // Vectors are indexed: through a cast of a sum the compiler stores one as four times 4 bytes.
    template <uint32_t all> __device__ __forceinline__ void write(bf16* data, uint32_t stride, uint32_t rows) const {
        const uint32_t own = threadIdx.x / CHUNKS, chunk = threadIdx.x % CHUNKS;
        data += own * stride;
#pragma unroll
        for (uint32_t i = 0; i < all; i += VARIANT_THREADS / CHUNKS)
            if (own + i < rows) ((uint4_t*)(data + i * stride))[chunk] = load_shared(at(own + i, chunk));
    }

    // Stores a warp's accumulators as 16 rows from `row`, from `column`, times factors of their halves.
    template <uint32_t N>
    __device__ __forceinline__ void store_rows(uint32_t row, const float (&acc)[N][4],
                                               const float (&factors)[2] = {1.0f, 1.0f}, uint32_t column = 0) const {
#pragma unroll
        for (uint32_t i = 0; i < 2 * N; i++) {
            const uint32_t n = i / 2, half = i % 2, lane = threadIdx.x % WARP;
            store(row + lane / 4 + half * 8, column + n * 8 + lane % 4 * 2, factors[half] * acc[n][2 * half],
                  factors[half] * acc[n][2 * half + 1]);
        }
    }

    // Copies `rows` rows from `first`, and zeros up to 16: the calling warp alone does, for itself.
    __device__ __forceinline__ void copy_rows(uint32_t first, const bf16* data, uint32_t stride, uint32_t rows) const {
        const uint32_t lane = threadIdx.x % WARP, own = lane / CHUNKS, chunk = lane % CHUNKS;
        data += own * stride + chunk * 8;
#pragma unroll
        for (uint32_t i = 0; i < 16; i += WARP / CHUNKS)
            cp_async(at(first + own + i, chunk), data + i * stride, own + i < rows);
    }
    // Writes `rows` of `all` rows, behind a sync_warp.
    template <uint32_t all>
    __device__ __forceinline__ void write_rows(uint32_t first, bf16* data, uint32_t stride, uint32_t rows) const {
        const uint32_t lane = threadIdx.x % WARP, own = lane / CHUNKS, chunk = lane % CHUNKS;
        data += own * stride;
#pragma unroll
        for (uint32_t i = 0; i < all; i += WARP / CHUNKS)
            if (own + i < rows) ((uint4_t*)(data + i * stride))[chunk] = load_shared(at(first + own + i, chunk));
    }
};

// The 16 x (8 * N) accumulators of a warp: element `i` of {n} is of row row_of(i) and column 8 * n + column_of(i).
__device__ __forceinline__ uint32_t row_of(uint32_t i) { return threadIdx.x % WARP / 4 + i / 2 * 8; }
__device__ __forceinline__ uint32_t column_of(uint32_t i) { return threadIdx.x % WARP % 4 * 2 + i % 2; }

// acc += a b, of `steps` steps of depth 16: `load_a(fragment, step)`, and `load_b(fragment, step, pair)` of 16 columns.
template <uint32_t N, typename LoadA, typename LoadB>
__device__ __forceinline__ void multiply(float (&acc)[N][4], uint32_t steps, const LoadA& load_a, const LoadB& load_b) {
#pragma unroll
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t a[4];
        load_a(a, step);
#pragma unroll
        for (uint32_t pair = 0; pair < N / 2; pair++) {
            uint32_t b[4];
            load_b(b, step, pair);
            mma(acc[2 * pair], a, b[0], b[1]);
            mma(acc[2 * pair + 1], a, b[2], b[3]);
        }
    }
}

// Of M times 16 rows, {m} of which `load_a(fragment, step, m)` takes: each operand b is loaded once.
template <uint32_t M, uint32_t N, typename LoadA, typename LoadB>
__device__ __forceinline__ void multiply(float (&acc)[M][N][4], uint32_t steps, const LoadA& load_a,
                                         const LoadB& load_b) {
#pragma unroll
    for (uint32_t step = 0; step < steps; step++) {
        uint32_t a[M][4];
#pragma unroll
        for (uint32_t m = 0; m < M; m++) load_a(a[m], step, m);
#pragma unroll
        for (uint32_t pair = 0; pair < N / 2; pair++) {
            uint32_t b[4];
            load_b(b, step, pair);
#pragma unroll
            for (uint32_t m = 0; m < M; m++) {
                mma(acc[m][2 * pair], a[m], b[0], b[1]);
                mma(acc[m][2 * pair + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// acc += a b, of 16 rows of `a` from `row`.
template <uint32_t depth, uint32_t columns, uint32_t N>
__device__ __forceinline__ void multiply(float (&acc)[N][4], const Tile<depth>& a, uint32_t row,
                                         const Tile<columns>& b) {
    multiply(
        acc, depth / 16, [&](uint32_t(&fragment)[4], uint32_t step) { a.load_a(fragment, row, step); },
        [&](uint32_t(&fragment)[4], uint32_t step, uint32_t pair) { b.load_b(fragment, step * 16, 2 * pair); });
}
