// Gates in the epilogue: a chunk of gate and the chunk of up of the same columns become one of y. Both are rounded
// first, so a tile waits as bf16 for its special functions, too.
#pragma once
#include "gemm/swiglu.cuh"
#include "gemm/wgmma/epilogue.cuh"

template <typename Base> struct GatedEpilogue : Base {
    __device__ __forceinline__ void store(uint32_t c, const uint32_t (&gate)[4][2], const uint32_t (&up)[4][2]) const {
        uint32_t pairs[4][2];
#pragma unroll
        for (uint32_t q = 0; q < 4; q++)
#pragma unroll
            for (uint32_t row = 0; row < 2; row++) {
                float y[2];
#pragma unroll
                for (uint32_t e = 0; e < 2; e++)
                    y[e] = gated(unpack_bf16x2(gate[q][row], e), unpack_bf16x2(up[q][row], e));
                pairs[q][row] = pack_bf16x2(y[0], y[1]);
            }
        Base::store(c, pairs);
    }
};
