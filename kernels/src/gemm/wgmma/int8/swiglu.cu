// Gate and up projection in int8 on sm_90a, gated in the epilogue: y = silu(x wg^T) (x wu^T), nothing else leaves the
// registers. Tiles as in gemm/wgmma/swiglu.cu: one thread holds the sums of gate and up. TMA descriptors: x, w.
// Bound: tensor cores, and the special functions of the epilogue where the depth is small. Sources: see fwd.cu.
#define INT8
#include "gemm/swiglu.cuh"
#include "gemm/wgmma/int8/epilogue.cuh"
#include "gemm/wgmma/forward.cuh"

// Combines a chunk of gate sums and the up sums of the same columns into one of y.
template <bool has_bias> struct Int8SwigluEpilogue : Bf16Epilogue<false, false> {
    enum : bool { PAIRED = true };
    typedef int32_t Sum;
    Scales scales;
    const bf16* gate_up_bias;

    __device__ __forceinline__ void enter(uint32_t last, uint32_t matrix) {
        rows = last;
        scales.w = scales.first + matrix;
    }
    __device__ __forceinline__ void begin(uint32_t first_row, uint32_t first_column) {
        scales.begin(first_row + lane() / 4, rows);
        Bf16Epilogue<false, false>::begin(first_row, first_column);
    }
    __device__ __forceinline__ void chunk(uint32_t c, const int32_t (&gate)[4][4], const int32_t (&up)[4][4]) const {
        float values[4][4];
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint32_t quad = c * 4 + q, j = pair_column(quad);
            const float2_t gate_scales = scales.pair(j, columns), up_scales = scales.pair(j, columns, columns);
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                float first = scales.apply(gate[q][e], e, gate_scales), second = scales.apply(up[q][e], e, up_scales);
                if (has_bias) {
                    first += unpack_bf16x2(pair_of(gate_up_bias, quad), e);
                    second += unpack_bf16x2(pair_of(gate_up_bias + columns, quad), e);
                }
                values[q][e] = swiglu<bf16>(first, second);
            }
        }
        Bf16Epilogue<false, false>::chunk(c, values);
    }
};

CLUSTER_KERNEL(gemm_swiglu_params, CLUSTER) {
    Int8SwigluEpilogue<KEY_BIAS> y = {{nullptr, nullptr, (bf16*)p.y, p.m, p.n},
                                      {(const float*)p.x_scale, (const float*)p.w_scale, (const float*)p.w_scale},
                                      (const bf16*)p.bias};
    forward(p, p.k / 2, y);
}
