// The persistent tile scheduler: assigns tiles of C to CTAs, in order, with their parts of K. The CTAs of a cluster
// compute tiles below each other and share their columns of B. If `stream_k`, tiles beyond whole waves are split along
// K by the CTAs of a cluster, if that is faster (Osama et al., "Stream-K", 2023), and neighbors that are not below each
// other share nothing. All CTAs of a cluster go through equally many k-tiles.
#pragma once
#include "gemm.h"
#include "gemm/raster.cuh"
#include "hopper.cuh"

enum : uint32_t {
    CLUSTER = VARIANT_CLUSTER,
    TILE_M = VARIANT_TILE_M,
    TILE_N = VARIANT_TILE_N,
    TILE_K = VARIANT_TILE_K,        // 64: rows of 128 bytes, the widest swizzle
    SLAB_BYTES = TILE_K * 128,      // 64 rows of an operand
    CONSUMERS = TILE_M / 64,        // warpgroups that issue wgmma, 64 rows of a tile each
    WARPGROUP = 128,                // threads
    RASTER_BAND = 16,               // tile rows
    SHARED_BYTES = VARIANT_SHARED_BYTES,
    STAGE_GOAL_BYTES = 32 << 10,    // at least, for small k-tiles: waits for mbarriers are then rare
};

// One piece of work: a tile of C over k-tiles begin .. end.
struct WorkTile {
    uint32_t row, column, begin, end;
    bool split_k; // the CTAs of the cluster split the tile, each over its part of K
    bool shares;  // they have the same columns of B
};

// C is m x n, the sum runs over k.
struct DenseProblem {
    uint32_t m, n, k;
};

template <bool stream_k, uint32_t tile_n> struct TileScheduler {
    typedef DenseProblem Problem;
    typedef WorkTile Work;
    enum : bool { STREAM_K = stream_k };
    enum : uint32_t { SHARERS = stream_k ? 1 : CLUSTER, ROWS = SHARERS * TILE_M, BAND = RASTER_BAND / SHARERS };
    uint32_t tiles_m, tiles_n, k_tiles, rank, tiles, whole, index; // tiles of C, or of clusters that share B
    bool split_k;

    // Row of B's of a tile's first column.
    static __device__ __forceinline__ uint32_t weight_row(const WorkTile& work) { return work.column; }
    template <typename Epilogue> static __device__ __forceinline__ void enter(Epilogue&, const WorkTile&) {}

    __device__ __forceinline__ TileScheduler(const DenseProblem& problem) {
        tiles_m = (problem.m + ROWS - 1) / ROWS;
        tiles_n = (problem.n + tile_n - 1) / tile_n;
        k_tiles = (problem.k + TILE_K - 1) / TILE_K;
        rank = CLUSTER > 1 ? cluster_cta_rank() : 0;
        tiles = tiles_m * tiles_n;
        whole = tiles;
        index = blockIdx.x / SHARERS;
        split_k = false;
        if (stream_k && CLUSTER > 1) {
            const uint32_t clusters = gridDim.x / CLUSTER, rest = tiles % gridDim.x;
            const uint32_t rounds = (rest + clusters - 1) / clusters; // each takes 1 / CLUSTER of a tile's time
            if (rounds < CLUSTER && k_tiles >= 8) whole = tiles - rest;
        }
    }

    __device__ __forceinline__ bool next(WorkTile& work) {
        // A cluster never straddles bands: if its first and last tile have the same columns, so have all.
        static_assert(RASTER_BAND % CLUSTER == 0, "bands of whole clusters");
        const uint32_t first = stream_k && !split_k ? index - rank : index; // of the cluster's whole tiles
        if (stream_k && CLUSTER > 1 && !split_k && first >= whole) {
            split_k = true;
            index = whole + blockIdx.x / CLUSTER;
        }
        if ((split_k ? index : first) >= tiles) return false;
        work.begin = 0;
        work.end = k_tiles;
        work.split_k = stream_k && split_k;
        if (work.split_k) { // the last may have k-tiles past the end
            const uint32_t part = (k_tiles + CLUSTER - 1) / CLUSTER;
            work.begin = rank * part;
            work.end = work.begin + part;
        }
        const TileIndex tile = rasterize<BAND>(index < tiles ? index : first, tiles_m, tiles_n);
        work.row = index < tiles ? tile.m * ROWS + (SHARERS > 1 ? rank * TILE_M : 0) : tiles_m * ROWS;
        work.column = tile.n * tile_n;
        work.shares = SHARERS > 1;
        if (stream_k && CLUSTER > 1 && !split_k) {
            const uint32_t last = first + CLUSTER < tiles ? first + CLUSTER - 1 : tiles - 1;
            work.shares = rasterize<BAND>(first, tiles_m, tiles_n).n == rasterize<BAND>(last, tiles_m, tiles_n).n;
        }
        index += work.split_k ? gridDim.x / CLUSTER : gridDim.x / SHARERS;
        return true;
    }
};
