// Rows of the wgmma attention kernels. They lie in shared memory as slabs of 64 elements: 128 bytes per row, in the
// 128-byte swizzle, so that a tile is an operand of wgmma K-major and MN-major. Query heads of one key/value head are
// packed (PackGQA): row r of a group stands for position r / group of head r % group, so that a tile of keys or of rows
// serves the whole group and the diagonal is crossed once.
#pragma once
#include "attention/softmax.cuh"
#include "hopper.cuh"
#include "wgmma.cuh"

enum : uint32_t {
    WARPGROUP = 128,
    CHUNKS = KEY_D / 8, // 16-byte chunks of a row
    STEPS = KEY_D / 16, // wgmma of depth 16 along a head
};

// ---- rows --------------------------------------------------------------------------------------------

template <bool packed> struct Rows {
    unsigned char* data;
    uint32_t group;   // heads packed
    uint32_t inverse; // 2^31 / group, rounded up
    uint32_t stride;  // bytes from position to position, less a packed group's
    __device__ __forceinline__ uint32_t position(uint32_t row) const {
        return packed ? mul_hi(2 * row, inverse) : row; // exact while row * group < 2^31
    }
    __device__ __forceinline__ unsigned char* at(uint32_t row) const {
        unsigned char* start = data + uint64_t(position(row)) * stride;
        return packed ? start + uint64_t(row) * (KEY_D * 2) : start;
    }
    // Returns another head of the buffer.
    __device__ __forceinline__ Rows head(uint32_t index) const {
        return {data + index * (KEY_D * 2), group, inverse, stride};
    }
};

// A head, or a group of heads, of a sequence from `column` on of a packed [tokens, columns * d] buffer.
template <bool packed>
__device__ __forceinline__ Rows<packed> rows_of(address data, const SequenceTile& own, uint32_t columns,
                                                uint32_t column, uint32_t group) {
    unsigned char* start = (unsigned char*)data + (uint64_t(own.first) * columns + column) * (KEY_D * 2);
    return {start, group, 0x7fffffffu / group + 1, (columns - (packed ? group : 0)) * KEY_D * 2};
}

// Address of a chunk of a row of a tile.
template <uint32_t rows> __device__ __forceinline__ uint32_t chunk_at(uint32_t tile, uint32_t row, uint32_t chunk) {
    return tile + chunk / 8 * rows * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

// Lets `threads` threads start copying `rows` rows from `first`; rows from `end` on become zeros.
template <uint32_t rows, uint32_t threads, bool packed>
__device__ __forceinline__ void copy_rows(uint32_t tile, Rows<packed> source, uint32_t first, uint32_t end) {
    const uint32_t thread = threadIdx.x % threads, chunk = thread % CHUNKS;
#pragma unroll
    for (uint32_t i = 0; i < rows; i += threads / CHUNKS) {
        const uint32_t row = thread / CHUNKS + i;
        if (rows % (threads / CHUNKS) != 0 && row >= rows) break;
        cp_async(chunk_at<rows>(tile, row, chunk), source.at(first + row) + chunk * 16, first + row < end);
    }
}

// ---- warpgroups --------------------------------------------------------------------------------------

__device__ __forceinline__ void sync_warpgroup() {
    named_barrier_sync(1 + threadIdx.x / WARPGROUP, WARPGROUP);
}
// Warp-uniform, which the compiler must know: addresses computed from it need no vector registers.
__device__ __forceinline__ uint32_t warpgroup_index() { return broadcast(threadIdx.x / WARPGROUP); }

// Return matrix descriptors of a tile of `rows` rows, at K step `step` of 16: K along the head (K-major), or along the
// rows (MN-major).
template <uint32_t rows> __device__ __forceinline__ uint64_t k_major(uint32_t tile, uint32_t step) {
    return smem_descriptor((tile / 16 | 1 << 16) + step / 4 * rows * 8 + step % 4 * 2);
}
template <uint32_t rows> __device__ __forceinline__ uint64_t mn_major(uint32_t tile, uint32_t step) {
    return smem_descriptor((tile / 16 | rows * 8 << 16) + step * 128);
}

// Epilogue: writes a warpgroup's 64 rows of accumulators, times `scale`, through a tile of shared memory that is no
// longer read.
template <bool packed>
__device__ __forceinline__ void store_rows(Rows<packed> target, uint32_t first, uint32_t end, uint32_t tile,
                                           const float (&acc)[CHUNKS][4], float scale) {
    const uint32_t thread = threadIdx.x % WARPGROUP, lane = thread % WARP;
#pragma unroll
    for (uint32_t n = 0; n < CHUNKS; n++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            store_shared(chunk_at<64>(tile, thread / WARP * 16 + lane / 4 + 8 * half, n) + lane % 4 * 4,
                         pack_bf16x2(acc[n][2 * half] * scale, acc[n][2 * half + 1] * scale));
    sync_warp(); // a warp writes and reads its own 16 rows
    const uint32_t chunk = lane % CHUNKS;
#pragma unroll
    for (uint32_t r = lane / CHUNKS; r < 16; r += WARP / CHUNKS) {
        const uint32_t row = thread / WARP * 16 + r;
        if (first + row >= end) continue;
        uint4_t* to = (uint4_t*)(target.at(first + row) + chunk * 16);
        *to = load_shared(chunk_at<64>(tile, row, chunk));
    }
}
