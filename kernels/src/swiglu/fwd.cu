// SwiGLU forward: y = gate * sigmoid(gate) * up.
// Gate and up are the halves of one row, as one projection wrote them. One block a token.
// Memory bound: vectors of four where the row length allows it.
#include "device.cuh"
#include "swiglu.h"

__device__ __forceinline__ float swiglu(float gate, float up) { return gate * reciprocal(1.0f + expf(-gate)) * up; }

KERNEL(swiglu_fwd_params) {
    const KEY_X* gate = (const KEY_X*)p.gate_up + uint64_t(blockIdx.x) * 2 * p.n;
    const KEY_X* up = gate + p.n;
    KEY_X* y = (KEY_X*)p.y + uint64_t(blockIdx.x) * p.n;
    const uint32_t vectors = p.n % 4 == 0 ? p.n / 4 : 0;
    for (uint32_t i = threadIdx.x; i < vectors; i += VARIANT_THREADS) {
        const float4_t g = load4(gate + 4 * i), u = load4(up + 4 * i);
        float4_t out;
#pragma unroll
        for (int j = 0; j < 4; j++) out.v[j] = swiglu(g.v[j], u.v[j]);
        store4(y + 4 * i, out);
    }
    for (uint32_t i = 4 * vectors + threadIdx.x; i < p.n; i += VARIANT_THREADS)
        y[i] = from_float<KEY_X>(swiglu(to_float(gate[i]), to_float(up[i])));
}
