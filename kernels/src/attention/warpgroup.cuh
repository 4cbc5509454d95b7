// What the warpgroup (wgmma) attention kernels share. Rows of a head lie in shared memory as panels of 64 elements: 128
// bytes a row, their 16-byte chunks swizzled by the row, so that a tile is an operand either way round. Query heads of
// one key/value head are packed: row r of a group stands for position r / group of head r % group, so that a tile
// of keys or of rows serves the whole group and the diagonal is met once.
#pragma once
#include "attention/fragments.cuh"
#include "hopper.cuh"

enum : uint32_t {
    WARPGROUP = 128,
    CHUNKS = KEY_D / 8, // 16-byte chunks of a row
    STEPS = KEY_D / 16, // products of depth 16 along a head
    PANELS = KEY_D / 64,
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
    // Another head of the buffer.
    __device__ __forceinline__ Rows head(uint32_t index) const {
        return {data + index * (KEY_D * 2), group, inverse, stride};
    }
};

// A head, or a group of heads, from `column` on of a packed [batch, seq_len, columns * d] buffer.
template <bool packed>
__device__ __forceinline__ Rows<packed> rows_of(address data, uint32_t batch, uint32_t seq_len, uint32_t columns,
                                                uint32_t column, uint32_t group) {
    unsigned char* start = (unsigned char*)data + (uint64_t(batch) * seq_len * columns + column) * (KEY_D * 2);
    return {start, group, 0x7fffffffu / group + 1, (columns - (packed ? group : 0)) * KEY_D * 2};
}

// Address of a chunk of a row of a tile.
template <uint32_t rows> __device__ __forceinline__ uint32_t chunk_at(uint32_t tile, uint32_t row, uint32_t chunk) {
    return tile + chunk / 8 * rows * 128 + row * 128 + (chunk % 8 ^ row % 8) * 16;
}

// `threads` threads start copying `rows` rows from `first`; rows from `end` on become zeros.
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
// A result that a wait has completed: the compiler may not read it earlier, nor write it later than it is begun.
template <uint32_t n> __device__ __forceinline__ void settle(float (&d)[n][4]) {
#pragma unroll
    for (uint32_t i = 0; i < n; i++) asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

// The same number in all lanes of a warp, and known to be: addresses made from it need no vector registers.
__device__ __forceinline__ uint32_t warpgroup_index() { return broadcast(threadIdx.x / WARPGROUP); }

// A tile of `rows` rows as an operand: step of depth 16 along the head, or along the rows. The lower half of a matrix
// descriptor; the upper one says 1024 bytes from eight rows to the next eight, swizzle of 128 bytes.
template <uint32_t rows> __device__ __forceinline__ uint32_t along_head(uint32_t tile, uint32_t step) {
    return (tile / 16 | 1 << 16) + step / 4 * rows * 8 + step % 4 * 2;
}
template <uint32_t rows> __device__ __forceinline__ uint32_t along_rows(uint32_t tile, uint32_t step) {
    return (tile / 16 | rows * 8 << 16) + step * 128;
}

#define RESULT(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])

// d (64 x 64) = or += a b, a in shared memory along the head, b along the head.
__device__ __forceinline__ void product(float (&d)[8][4], uint32_t a, uint32_t b, bool add) {
    asm volatile("{.reg .pred add; .reg .b64 a, b; setp.ne.b32 add, %34, 0; mov.b64 a, {%32, 0x40000040}; "
                 "mov.b64 b, {%33, 0x40000040}; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "a, b, add, 1, 1, 0, 0;}"
                 : RESULT(0), RESULT(1), RESULT(2), RESULT(3), RESULT(4), RESULT(5), RESULT(6), RESULT(7)
                 : "r"(a), "r"(b), "r"(uint32_t(add)));
}
// d (64 x 64) += a b, a in registers, b along the rows.
__device__ __forceinline__ void product(float (&d)[8][4], const uint32_t (&a)[4], uint32_t b) {
    asm volatile("{.reg .b64 b; mov.b64 b, {%36, 0x40000040}; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, b, 1, 1, 1, 1;}"
                 : RESULT(0), RESULT(1), RESULT(2), RESULT(3), RESULT(4), RESULT(5), RESULT(6), RESULT(7)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}

// d (64 x 128) = or += a b, a in shared memory along the head, b along the head.
__device__ __forceinline__ void product(float (&d)[16][4], uint32_t a, uint32_t b, bool add) {
    asm volatile("{.reg .pred add; .reg .b64 a, b; setp.ne.b32 add, %66, 0; mov.b64 a, {%64, 0x40000040}; "
                 "mov.b64 b, {%65, 0x40000040}; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "a, b, add, 1, 1, 0, 0;}"
                 : RESULT(0), RESULT(1), RESULT(2), RESULT(3), RESULT(4), RESULT(5), RESULT(6), RESULT(7),
                   RESULT(8), RESULT(9), RESULT(10), RESULT(11), RESULT(12), RESULT(13), RESULT(14), RESULT(15)
                 : "r"(a), "r"(b), "r"(uint32_t(add)));
}
// d (64 x 128) += a b, a in registers, b along the rows.
__device__ __forceinline__ void product(float (&d)[16][4], const uint32_t (&a)[4], uint32_t b) {
    asm volatile("{.reg .b64 b; mov.b64 b, {%68, 0x40000040}; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, b, 1, 1, 1, 1;}"
                 : RESULT(0), RESULT(1), RESULT(2), RESULT(3), RESULT(4), RESULT(5), RESULT(6), RESULT(7),
                   RESULT(8), RESULT(9), RESULT(10), RESULT(11), RESULT(12), RESULT(13), RESULT(14), RESULT(15)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
#undef RESULT

// Writes a warpgroup's 64 result rows, times `scale`, through a tile of shared memory that nobody reads any more.
template <bool packed>
__device__ __forceinline__ void store_rows(Rows<packed> target, uint32_t first, uint32_t end, uint32_t tile,
                                           const float (&sum)[CHUNKS][4], float scale) {
    const uint32_t thread = threadIdx.x % WARPGROUP, lane = thread % WARP;
#pragma unroll
    for (uint32_t n = 0; n < CHUNKS; n++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++)
            store_shared(chunk_at<64>(tile, thread / WARP * 16 + lane / 4 + 8 * half, n) + lane % 4 * 4,
                         pack_bf16x2(sum[n][2 * half] * scale, sum[n][2 * half + 1] * scale));
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
