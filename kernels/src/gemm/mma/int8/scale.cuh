// Scales of a lane's rows and columns, in the accumulator layout of mma.
#pragma once
#include "mma_s8.cuh"
#include "gemm/scale.cuh"
#include "gemm/mma/epilogue.cuh"

// Returns the scale of row `half` of the warp's block `m` of 16.
__device__ __forceinline__ float
row_scale(const Sums<int32_t>& sums, address scales, uint32_t m, uint32_t half, uint32_t rows) {
    const uint32_t i = sums.i0 + m * 16 + half * 8 + threadIdx.x % WARP / 4;
    return i < rows ? ((const float*)scales)[i] : 0.0f;
}
// Returns the scales of the pair of columns at j, below `columns`; in W's rows they start at `first`.
__device__ __forceinline__ float2_t pair_scale(address scales, uint32_t j, uint32_t columns, uint32_t first) {
    return j < columns ? *reinterpret_cast<const float2_t*>((const float*)scales + first + j) : float2_t{};
}
