// Which tiles of C a block computes, in which order, and over which part of the depth.
#pragma once
#include "device.cuh"
#include "gemm.h"

enum : uint32_t {
    CLUSTER = VARIANT_CLUSTER,
    TILE_ROWS = VARIANT_TILE_M,
    TILE_COLUMNS = VARIANT_TILE_N,
    SLICE = VARIANT_TILE_K, // depth of a slice: 128 bytes, the widest swizzle
    PANEL = SLICE * 128, // bytes of 64 rows of a slice
    MULTIPLIERS = TILE_ROWS / 64, // warpgroups that multiply, 64 rows of a tile each
    LANES = 128, // threads of a warpgroup
    BAND = 16, // rows of tiles that are walked column by column, so that a wave's inputs stay in L2
    SHARED_BYTES = 227 * 1024,
};

// Which part of C a block computes next, and over which slices.
struct Work {
    uint32_t row, column, begin, end;
    bool split; // the blocks of the cluster share one tile, each over its part of the depth
};

// Every block walks its own list of whole tiles. If `splits`, what is no whole wave of tiles goes to clusters instead,
// whose blocks divide the depth, where that is faster; else the blocks of a cluster compute tiles below each other and
// share their columns of B.
template <bool splits, uint32_t tile_columns> struct Schedule {
    enum : uint32_t { SHARERS = splits ? 1 : CLUSTER, ROWS = SHARERS * TILE_ROWS, HIGH = BAND / SHARERS };
    uint32_t rows, columns, slices, rank, tiles, whole, index; // rows and columns of tiles, or of clusters' tiles
    bool split;

    __device__ __forceinline__ Schedule(uint32_t height, uint32_t width, uint32_t depth) {
        rows = (height + ROWS - 1) / ROWS;
        columns = (width + tile_columns - 1) / tile_columns;
        slices = (depth + SLICE - 1) / SLICE;
        rank = CLUSTER > 1 ? cluster_cta_rank() : 0;
        tiles = rows * columns;
        whole = tiles;
        index = blockIdx.x / SHARERS;
        split = false;
        if (splits && CLUSTER > 1) {
            const uint32_t clusters = gridDim.x / CLUSTER, rest = tiles % gridDim.x;
            const uint32_t rounds = (rest + clusters - 1) / clusters; // each takes 1 / CLUSTER of a tile's time
            if (rounds < CLUSTER && slices >= 4 * CLUSTER) whole = tiles - rest;
        }
    }

    __device__ __forceinline__ bool next(Work& work) {
        if (splits && CLUSTER > 1 && !split && index >= whole) {
            split = true;
            index = whole + blockIdx.x / CLUSTER;
        }
        if (index >= tiles) return false;
        work.begin = 0;
        work.end = slices;
        work.split = splits && split;
        if (work.split) {
            work.begin = slices * rank / CLUSTER;
            work.end = slices * (rank + 1) / CLUSTER;
        }
        const uint32_t first = index / (HIGH * columns) * HIGH;
        const uint32_t height = min(uint32_t(HIGH), rows - first);
        const uint32_t within = index - first * columns;
        work.row = (first + within % height) * ROWS + (SHARERS > 1 ? rank * TILE_ROWS : 0);
        work.column = within / height * tile_columns;
        index += work.split ? gridDim.x / CLUSTER : gridDim.x / SHARERS;
        return true;
    }
};
