// The tile of a forward GEMM that a CTA computes: of the whole result, or of an expert's rows.
#pragma once
#include "gemm/mma/mainloop.cuh"

// Declares `tile`, the index of a tile with so many columns of the result, and `own`, the parameters that it is a tile
// of.
#ifdef KEY_EXPERTS
#include "gemm/experts.cuh"

#define TAKE_TILE(params_t, columns, matrix_rows) \
    params_t own = p; \
    uint32_t tile; \
    if (!take_tile<columns>(own, tile, matrix_rows)) return

template <uint32_t columns, typename P>
__device__ __forceinline__ bool take_tile(P& p, uint32_t& tile, uint32_t matrix_rows) {
    enum : uint32_t { PARTS = EXPERT_TILE / TILE_M };
    const ExpertTiles tiles = {(const uint32_t*)p.tiles};
    const uint32_t tiles_m = tiles.count() * PARTS, tiles_n = (p.n + columns - 1) / columns;
    if (blockIdx.x >= tiles_m * tiles_n) return false;
    const TileIndex at = rasterize<RASTER_BAND>(blockIdx.x, tiles_m, tiles_n);
    tile = at.n;
    return narrow(p, tiles[at.m / PARTS], at.m % PARTS, TILE_M, matrix_rows);
}
#else
#define TAKE_TILE(params_t, columns, matrix_rows) \
    const params_t& own = p; \
    const uint32_t tile = blockIdx.x
#endif
