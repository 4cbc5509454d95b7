// Gate and up projection on tensor cores, gated at the store: y = silu(x wg^T) (x wu^T), nothing else leaves the registers.
// w holds the rows of wg and then those of wu: half of a warp's columns are of the one, half the same columns of the other.
// n and k are multiples of 8, addresses of 16 bytes; m is any. See multiply.cuh.
#include "gemm/gated.cuh"
#include "gemm/mma/store.cuh"

enum : uint32_t {
    GATED_N = WARP_N / 2,
    GATED_QUADS = GATED_N / 4, // of a row of y
};

// Four gated columns from where a strip has their gates; bias lies as w's rows do.
__device__ __forceinline__ float4_t gate_four(const float* strip, const bf16* bias, uint32_t n) {
    float4_t gate = load4(strip), up = load4(strip + GATED_N);
    if (KEY_BIAS) {
        add(gate, load4(bias));
        add(up, load4(bias + n));
    }
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) gate.v[e] = gated<bf16>(gate.v[e], up.v[e]);
    return gate;
}

KERNEL(gemm_swiglu_params) {
    Sums sums;
    const Matrix a = {(const void*)p.x, p.k, p.m, p.k}, b = {(const void*)p.w, p.k, p.n, p.k};
    multiply<false, false, true>(a, b, {blockIdx.x, 0, 1}, sums);
    const uint32_t lane = threadIdx.x % WARP, row = lane / GATED_QUADS, column = lane % GATED_QUADS * 4;
    const uint32_t j = sums.j0 + column;
    float* own = own_strip();
    sync_block(); // all fragments have been read
#pragma unroll
    for (uint32_t strip = 0; strip < WARP_M / STRIP; strip++) {
        put_strip(sums, strip, own);
#pragma unroll
        for (uint32_t r = row; r < STRIP; r += WARP / GATED_QUADS) {
            const uint32_t i = sums.i0 + strip * STRIP + r;
            if (i < p.m && j < p.n)
                store4((bf16*)p.y + uint64_t(i) * p.n + j, gate_four(own + r * PITCH + column, (const bf16*)p.bias + j, p.n));
        }
        sync_warp();
    }
}
