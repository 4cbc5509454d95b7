// Epilogue of exact sums: scales them, then stores them like bf16's. The scales of a lane's two rows are fetched while
// the last wgmma are in flight, those of its columns chunk by chunk: no registers are left for more.
#pragma once
#include "wgmma_s8.cuh"
#include "gemm/scale.cuh"
#include "gemm/wgmma/epilogue.cuh"

struct Scales {
    const float *x, *w, *first; // of X's rows, of the expert's or all of W's, of W's first
    float upper, lower;         // scales of the lane's rows

    __device__ __forceinline__ void begin(uint32_t row, uint32_t rows) {
        upper = row < rows ? x[row] : 0.0f;
        lower = row + 8 < rows ? x[row + 8] : 0.0f;
    }
    // Returns the scales of the lane's columns j and j + 1, below `columns`; in W's rows they start at `first`.
    __device__ __forceinline__ float2_t pair(uint32_t j, uint32_t columns, uint32_t first = 0) const {
        return j < columns ? *reinterpret_cast<const float2_t*>(w + first + j) : float2_t{};
    }
    __device__ __forceinline__ float apply(int32_t sum, uint32_t e, float2_t columns) const {
        return scaled(sum, e < 2 ? upper : lower, columns.v[e % 2]);
    }
};

template <bool has_bias, bool has_residual> struct Int8Epilogue : Bf16Epilogue<has_bias, has_residual> {
    typedef Bf16Epilogue<has_bias, has_residual> Base;
    typedef int32_t Sum;
    Scales scales;

    // Turns to an expert: `last` is the row behind its last, `matrix` the first of its rows of W.
    __device__ __forceinline__ void enter(uint32_t last, uint32_t matrix) {
        Base::enter(last, matrix);
        scales.w = scales.first + matrix;
    }
    __device__ __forceinline__ void begin(uint32_t first_row, uint32_t first_column) {
        scales.begin(first_row + Base::lane() / 4, Base::rows);
        Base::begin(first_row, first_column);
    }
    __device__ __forceinline__ void chunk(uint32_t c, const int32_t (&sums)[4][4]) const {
        float values[4][4];
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const float2_t columns = scales.pair(Base::pair_column(c * 4 + q), Base::columns);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) values[q][e] = scales.apply(sums[q][e], e, columns);
        }
        Base::chunk(c, values);
    }
};
