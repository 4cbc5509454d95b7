// Gate and up projection on sm_90a, gated in the epilogue: y = silu(x wg^T) (x wu^T), nothing else leaves the
// registers. w holds the rows of wg and then those of wu: a tile is columns of the one and the same columns of the
// other, so that one thread holds both accumulators. The CTAs of a cluster share the tile of w by multicast. TMA
// descriptors: x, w.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/swiglu.cuh"
#include "gemm/wgmma/epilogue.cuh"
#include "gemm/wgmma/forward.cuh"

// Combines a chunk of gate accumulators and the up accumulators of the same columns into one of y.
template <bool has_bias> struct SwigluEpilogue : Bf16Epilogue<false, false> {
    enum : bool { PAIRED = true };
    const bf16* gate_up_bias;

    __device__ __forceinline__ void chunk(uint32_t c, float (&gate)[4][4], const float (&up)[4][4]) const {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++)
#pragma unroll
            for (uint32_t e = 0; e < 4; e++) {
                float first = gate[q][e], second = up[q][e];
                if (has_bias) {
                    const uint32_t quad = c * 4 + q;
                    first += unpack_bf16x2(pair_of(gate_up_bias, quad), e);
                    second += unpack_bf16x2(pair_of(gate_up_bias + columns, quad), e);
                }
                gate[q][e] = swiglu<bf16>(first, second);
            }
        Bf16Epilogue<false, false>::chunk(c, gate);
    }
};

CLUSTER_KERNEL(gemm_swiglu_params, CLUSTER) {
    SwigluEpilogue<KEY_BIAS> y = {{nullptr, nullptr, (bf16*)p.y, p.m, p.n}, (const bf16*)p.bias};
    forward(p, p.k, y);
}
