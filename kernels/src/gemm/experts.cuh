// Narrows a GEMM of experts to one tile of the list of their rows, and to that tile's expert: a dense GEMM of at most
// EXPERT_TILE rows. Rows behind an expert's last are the next expert's: loaded by some, stored by none.
#pragma once
#include "device.cuh"
#include "gemm.h"

struct alignas(16) ExpertTile {
    uint32_t expert, first, end, reserved;
};

// A list of tiles.
struct ExpertTiles {
    const uint32_t* words;

    __device__ __forceinline__ uint32_t count() const { return words[0]; }
    __device__ __forceinline__ ExpertTile operator[](uint32_t tile) const {
        return ((const ExpertTile*)words)[1 + tile];
    }
};

#ifdef INT8
enum : uint32_t { X_BYTES = 1, Y_BYTES = 2 };
#else
enum : uint32_t { X_BYTES = sizeof(KEY_X), Y_BYTES = sizeof(KEY_X) };
#endif

// Narrows `p` to part `part` of `rows` rows of a tile; false if that has no row. An expert's matrix has `matrix_rows`.
template <typename P>
__device__ __forceinline__ bool
narrow(P& p, const ExpertTile& tile, uint32_t part, uint32_t rows, uint32_t matrix_rows) {
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
