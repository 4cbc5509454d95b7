// Rows of one head in shared memory and their fragments, for the mma.sync attention kernels. A row holds one position,
// padded by 16 bytes: an odd number of 16-byte chunks, so that ldmatrix of eight rows is free of bank conflicts
// whatever KEY_D is. A warp owns 16 * M consecutive rows and reads them as operand a.
#pragma once
#include "attention/softmax.cuh"

enum : uint32_t {
    PITCH = 2 * KEY_D + 16,   // bytes from row to row
    CHUNKS = KEY_D / 8,       // 16-byte chunks of a row
    STEPS = KEY_D / 16,       // mma of depth 16 along a head
};
// One head of a sequence in a packed [tokens, columns * d] buffer.
struct Head {
    bf16* data; // position 0
    uint32_t stride;
};

__device__ __forceinline__ Head head_of(address data, const SequenceTile& own, uint32_t columns, uint32_t column) {
    const uint32_t stride = columns * KEY_D;
    return {(bf16*)data + uint64_t(own.first) * stride + column * KEY_D, stride};
}

// Starts copying `rows` positions from `first`; positions past the end become zeros.
template <uint32_t rows>
__device__ __forceinline__ void copy_rows(uint32_t shared, Head head, uint32_t first, uint32_t seq_len) {
#pragma unroll(KEY_D > 128 ? 8 : 64)
    for (uint32_t i = 0; i < (rows * CHUNKS + VARIANT_THREADS - 1) / VARIANT_THREADS; i++) {
        const uint32_t n = threadIdx.x + i * VARIANT_THREADS;
        if (rows * CHUNKS % VARIANT_THREADS != 0 && n >= rows * CHUNKS) break;
        const uint32_t row = n / CHUNKS, chunk = n % CHUNKS, position = first + row;
        const bool valid = position < seq_len;
        cp_async(shared + row * PITCH + chunk * 16,
                   head.data + uint64_t(valid ? position : 0) * head.stride + chunk * 8, valid);
    }
}

// Operand a: 16 rows, step `step` of depth 16.
__device__ __forceinline__ void load_a(uint32_t (&a)[4], uint32_t rows, uint32_t step) {
    const uint32_t lane = threadIdx.x % WARP;
    ldmatrix_x4(a, rows + lane % 16 * PITCH + lane / 16 * 16 + step * 32);
}
// Operand b of rows^T: columns are 16 rows ({b[0], b[1]} the first 8), depth is step `step` of the head.
__device__ __forceinline__ void load_b(uint32_t (&b)[4], uint32_t rows, uint32_t step) {
    const uint32_t lane = threadIdx.x % WARP;
    ldmatrix_x4(b, rows + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 16 + step * 32);
}
// Operand b of rows: depth is 16 rows, columns are elements 16 * step.. of the head ({b[0], b[1]} the first 8).
__device__ __forceinline__ void load_b_transposed(uint32_t (&b)[4], uint32_t rows, uint32_t step) {
    const uint32_t lane = threadIdx.x % WARP;
    ldmatrix_x4_trans(b, rows + lane % 16 * PITCH + lane / 16 * 16 + step * 32);
}

// Epilogue: writes a warp's 16 * m rows of accumulators, times `scale`, through its own rows of shared memory.
template <uint32_t m>
__device__ __forceinline__ void store_rows(Head head, uint32_t first, uint32_t seq_len, uint32_t shared,
                                           const float (&acc)[m][CHUNKS][4], float scale = 1.0f) {
    const uint32_t lane = threadIdx.x % WARP;
    sync_warp(); // the rows have been read
#pragma unroll
    for (uint32_t i = 0; i < m; i++)
#pragma unroll
        for (uint32_t n = 0; n < CHUNKS; n++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++)
                store_shared(shared + (16 * i + lane / 4 + 8 * half) * PITCH + n * 16 + lane % 4 * 4,
                             pack_bf16x2(acc[i][n][2 * half] * scale, acc[i][n][2 * half + 1] * scale));
    sync_warp();
#pragma unroll
    for (uint32_t n = lane; n < 16 * m * CHUNKS; n += WARP) {
        const uint32_t row = n / CHUNKS, chunk = n % CHUNKS;
        if (first + row >= seq_len) continue;
        uint4_t* to = (uint4_t*)(head.data + uint64_t(first + row) * head.stride + chunk * 8);
        *to = load_shared(shared + row * PITCH + chunk * 16);
    }
}
