// Narrows a GEMM of experts to one tile of the list of their rows, and to that tile's expert: a dense GEMM of at most
// EXPERT_TILE rows. Rows behind an expert's last are the next expert's: loaded by some, stored by none.
#pragma once
#include "device.cuh"
#include "gemm.h"

struct alignas(16) ExpertTile {
    uint32_t expert, first, end, reserved;
};

// Entries of the list, at most.
__device__ __forceinline__ uint32_t expert_tiles(uint32_t rows) { return (rows + EXPERT_TILE - 1) / EXPERT_TILE + KEY_EXPERTS - 1; }

#ifdef INT8
enum : uint32_t { X_BYTES = 1, Y_BYTES = 2 };
#else
enum : uint32_t { X_BYTES = sizeof(KEY_X), Y_BYTES = sizeof(KEY_X) };
#endif

// Narrows `p` to part `part` of `rows` rows of an entry; false if that has no row. An expert's matrix has `matrix_rows`.
template <typename P>
__device__ __forceinline__ bool narrow(P& p, uint32_t entry, uint32_t part, uint32_t rows, uint32_t matrix_rows) {
    const ExpertTile tile = ((const ExpertTile*)p.tiles)[entry];
    const uint32_t first = tile.first + part * rows;
    if (first >= tile.end) return false;
    const uint64_t matrix = uint64_t(tile.expert) * matrix_rows;
    p.x += uint64_t(first) * p.k * X_BYTES;
    p.w += matrix * p.k * X_BYTES;
    p.y += uint64_t(first) * p.n * Y_BYTES;
    p.m = min(tile.end - first, rows);
#ifdef INT8
    p.x_scale += uint64_t(first) * sizeof(float);
    p.w_scale += matrix * sizeof(float);
#endif
    return true;
}
