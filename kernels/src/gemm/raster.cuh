// Rasterization of output tiles: the order in which a linear index visits them.
// Bands of `band` tile rows, column by column within a band: tiles in flight together are about square, so that L2
// serves most of their reads. (CUTLASS: "threadblock swizzle".)
#pragma once
#include "device.cuh"

struct TileIndex {
    uint32_t m, n;
};

template <uint32_t band>
__device__ __forceinline__ TileIndex rasterize(uint32_t index, uint32_t tiles_m, uint32_t tiles_n) {
    const uint32_t first = index / (band * tiles_n) * band, within = index % (band * tiles_n);
    const uint32_t height = tiles_m - first < band ? tiles_m - first : band;
    return {first + within % height, within / height};
}
