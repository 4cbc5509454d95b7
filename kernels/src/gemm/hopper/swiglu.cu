// Gate and up projection on sm_90a, gated at the store: y = silu(x wg^T) (x wu^T), nothing else leaves the registers.
// w holds the rows of wg and then those of wu: a tile is columns of the one and the same columns of the other, which one
// thread has sums of. The blocks of a cluster share the tile of w. Maps: x, w.
#include "gemm/gated.cuh"
#include "gemm/hopper/store.cuh"

// A chunk of gate sums and that of the up sums of the same columns become one of y.
template <bool has_bias> struct Gated : Rounded<false, false> {
    enum : bool { PAIRED = true };
    const bf16* gate_up_bias;

    __device__ __forceinline__ void chunk(uint32_t c, float (&gate)[16], const float (&up)[16]) const {
#pragma unroll
        for (uint32_t e = 0; e < 16; e++) {
            float first = gate[e], second = up[e];
            if (has_bias) {
                const uint32_t quad = c * 4 + e / 4;
                first += unpack_bf16x2(pair_of(gate_up_bias, quad), e);
                second += unpack_bf16x2(pair_of(gate_up_bias + columns, quad), e);
            }
            gate[e] = gated<bf16>(first, second);
        }
        Rounded<false, false>::chunk(c, gate);
    }
};

CLUSTER_KERNEL(gemm_swiglu_params, CLUSTER) {
    Gated<KEY_BIAS> y = {{nullptr, nullptr, (bf16*)p.y, p.m, p.n}, (const bf16*)p.bias};
    product<false, false, false>(p.maps, p.m, p.n, p.k, y);
}
