// The scales of a lane's rows and columns, as mma leaves its sums.
#pragma once
#include "mma_s8.cuh"
#include "gemm/scale.cuh"
#include "gemm/mma/epilogue.cuh"

// Of row `half` of the warp's block `m` of 16.
__device__ __forceinline__ float row_scale(const Sums<int32_t>& sums, address scales, uint32_t m, uint32_t half, uint32_t rows) {
    const uint32_t i = sums.i0 + m * 16 + half * 8 + threadIdx.x % WARP / 4;
    return i < rows ? ((const float*)scales)[i] : 0.0f;
}
// Of the pair of columns at j, of as many as `columns`; of W's rows those from `first` on.
__device__ __forceinline__ float2_t pair_scale(address scales, uint32_t j, uint32_t columns, uint32_t first) {
    return j < columns ? *reinterpret_cast<const float2_t*>((const float*)scales + first + j) : float2_t{};
}
