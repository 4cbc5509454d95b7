// Assigns tiles of a stack's parts to CTAs; a warp's accumulators lie in a tile as in gemm/mma/mainloop.cuh.
#pragma once
#include "lora.h"
#include "gemm/mma/epilogue.cuh"

// A part, and a tile of its result.
struct PartTile {
    uint32_t part, tile;
};

__device__ __forceinline__ uint32_t tiles_of(uint32_t rows, uint32_t columns) {
    return ((rows + TILE_M - 1) / TILE_M) * ((columns + TILE_N - 1) / TILE_N);
}

// Returns tile `index` of all parts, in order; `tiles` returns the number of a part's tiles.
template <typename Tiles> __device__ __forceinline__ PartTile part_tile(uint32_t index, uint32_t parts, Tiles tiles) {
    uint32_t part = 0;
    for (; part + 1 < parts; part++) {
        const uint32_t count = tiles(part);
        if (index < count) break;
        index -= count;
    }
    return {part, index};
}
