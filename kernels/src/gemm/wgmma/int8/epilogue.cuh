// Epilogue of exact sums: scales them, then rounds and stores them like bf16's. The scales of a lane's two rows and of
// the tile's columns are fetched while the last wgmma are in flight: those of columns to a warp's own shared memory.
#pragma once
#include "wgmma_s8.cuh"
#include "gemm/scale.cuh"
#include "gemm/wgmma/epilogue.cuh"

struct Scales {
    const float *x, *w, *first; // of X's rows, of the expert's or all of W's, of W's first
    float upper, lower;         // scales of the lane's rows
};

template <bool has_bias, bool has_residual, bool paired = false>
struct Int8Epilogue : Bf16Epilogue<has_bias, has_residual, paired> {
    typedef Bf16Epilogue<has_bias, has_residual, paired> Base;
    typedef int32_t Sum;
    enum : uint32_t { SCRATCH = Base::SCRATCH + TILE_N * 4 };
    Scales scales;

    // Where the scales of the tile's columns are in the warp's shared memory.
    __device__ __forceinline__ uint32_t column_scales() const { return Base::scratch + Base::SCRATCH; }

    // Turns to an expert: `last` is the row behind its last, `matrix` the first of its rows of W.
    __device__ __forceinline__ void enter(uint32_t last, uint32_t matrix) {
        Base::enter(last, matrix);
        scales.w = scales.first + matrix;
    }
    __device__ __forceinline__ void begin(uint32_t first_row, uint32_t first_column) {
        const uint32_t row = first_row + Base::lane() / 4;
        scales.upper = row < Base::rows ? scales.x[row] : 0.0f;
        scales.lower = row + 8 < Base::rows ? scales.x[row + 8] : 0.0f;
#pragma unroll
        for (uint32_t i = Base::lane() * 2; i < TILE_N; i += 2 * WARP) {
            const uint32_t j = first_column + i % Base::PART;
            const float2_t pair =
                j < Base::columns ? *reinterpret_cast<const float2_t*>(scales.w + i / Base::PART * Base::columns + j)
                                  : float2_t{};
            store_shared(column_scales() + i * 4, pair.v[0], pair.v[1]);
        }
        sync_warp();
        Base::begin(first_row, first_column);
    }
    __device__ __forceinline__ void round(uint32_t c, const int32_t (&sums)[4][4], uint32_t (&pairs)[4][2]) const {
        float values[4][4];
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            float columns[2];
            load_shared(columns[0], columns[1], column_scales() + ((c * 4 + q) * 8 + Base::lane() % 4 * 2) * 4);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++)
                values[q][e] = scaled(sums[q][e], e < 2 ? scales.upper : scales.lower, columns[e % 2]);
        }
        Base::round(c, values, pairs);
    }
};
