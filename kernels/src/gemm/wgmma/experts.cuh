// The tile scheduler of a GEMM of experts: persistent CTAs read the list of tiles of the experts' rows, in order, and
// skip what has no rows. No CTA waits for another.
#pragma once
#include "gemm/experts.cuh"
#include "gemm/wgmma/scheduler.cuh"

// `tiles` lists pieces of m rows. C is m x n, the sum runs over k; an expert has `matrix_rows` rows of B.
struct ExpertProblem {
    ExpertTiles tiles;
    uint32_t m, n, k, matrix_rows;
};

struct ExpertWork : WorkTile {
    uint32_t last, matrix; // row behind the expert's last; first row of its B
};

template <uint32_t tile_n> struct ExpertScheduler {
    typedef ExpertProblem Problem;
    typedef ExpertWork Work;
    enum : bool { STREAM_K = false };
    enum : uint32_t { PARTS = EXPERT_TILE / TILE_M };
    static_assert(CLUSTER == 1 && EXPERT_TILE % TILE_M == 0, "a CTA computes a part of a tile of the list");
    const Problem& problem;
    uint32_t rank, tiles_m, tiles_n, index;

    __device__ __forceinline__ ExpertScheduler(const Problem& problem) : problem(problem) {
        rank = 0;
        tiles_m = problem.tiles.count() * PARTS;
        tiles_n = (problem.n + tile_n - 1) / tile_n;
        index = blockIdx.x;
    }

    static __device__ __forceinline__ uint32_t weight_row(const Work& work) { return work.matrix + work.column; }
    template <typename Epilogue> static __device__ __forceinline__ void enter(Epilogue& epilogue, const Work& work) {
        epilogue.enter(work.last, work.matrix);
    }

    __device__ __forceinline__ bool next(Work& work) {
        for (; index < tiles_m * tiles_n; index += gridDim.x) {
            const TileIndex at = rasterize<RASTER_BAND>(index, tiles_m, tiles_n);
            const ExpertTile tile = problem.tiles[at.m / PARTS];
            work.row = tile.first + at.m % PARTS * TILE_M;
            if (work.row >= tile.end) continue;
            work.column = at.n * tile_n;
            work.begin = 0;
            work.last = tile.end;
            work.matrix = tile.expert * problem.matrix_rows;
            work.end = (problem.k + TILE_K - 1) / TILE_K;
            work.split_k = work.shares = false;
            index += gridDim.x;
            return true;
        }
        return false;
    }
};
