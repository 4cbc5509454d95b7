// SwiGLU backward: dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * gate * s, s = sigmoid(gate).
// The sigmoid is recomputed from the saved gate: cheaper than reading it back. One block a token.
// Memory bound: vectors of four where the row length allows it.
#include "device.cuh"
#include "swiglu.h"

__device__ __forceinline__ void swiglu_grad(float gate, float up, float dy, float& dgate, float& dup) {
    const float s = reciprocal(1.0f + expf(-gate));
    dgate = dy * up * s * (1.0f + gate * (1.0f - s));
    dup = dy * gate * s;
}

KERNEL(swiglu_bwd_params) {
    const uint64_t row = uint64_t(blockIdx.x) * 2 * p.n;
    const KEY_X* gate = (const KEY_X*)p.gate_up + row;
    const KEY_X* up = gate + p.n;
    const KEY_X* dy = (const KEY_X*)p.dy + uint64_t(blockIdx.x) * p.n;
    KEY_X* dgate = (KEY_X*)p.dgate_up + row;
    KEY_X* dup = dgate + p.n;
    const uint32_t vectors = p.n % 4 == 0 ? p.n / 4 : 0;
    for (uint32_t i = threadIdx.x; i < vectors; i += VARIANT_THREADS) {
        const float4_t g = load4(gate + 4 * i), u = load4(up + 4 * i), d = load4(dy + 4 * i);
        float4_t dg, du;
#pragma unroll
        for (int j = 0; j < 4; j++) swiglu_grad(g.v[j], u.v[j], d.v[j], dg.v[j], du.v[j]);
        store4(dgate + 4 * i, dg);
        store4(dup + 4 * i, du);
    }
    for (uint32_t i = 4 * vectors + threadIdx.x; i < p.n; i += VARIANT_THREADS) {
        float dg, du;
        swiglu_grad(to_float(gate[i]), to_float(up[i]), to_float(dy[i]), dg, du);
        dgate[i] = from_float<KEY_X>(dg);
        dup[i] = from_float<KEY_X>(du);
    }
}
