// SwiGLU forward: y = gate * sigmoid(gate) * up, or GeGLU (gate.cuh). Gate and up are the halves of one row of their
// joint projection. A few CTAs per token, a vector per thread.
// Bound: memory, in 16-byte vectors where the row length allows it.
// Source: Shazeer, "GLU Variants Improve Transformer", 2020.
#include "early.cuh"
#include "gate.cuh"
#include "swiglu/segment.cuh"

template <uint32_t width> __device__ __forceinline__ void forward(const swiglu_fwd_params& p) {
    const Segment segment = segment_of(p.tokens);
    const KEY_X* gate = (const KEY_X*)p.gate_up + uint64_t(segment.token) * 2 * p.n;
    const KEY_X* up = gate + p.n;
    KEY_X* y = (KEY_X*)p.y + uint64_t(segment.token) * p.n;
    for (uint32_t i = segment.first; i < p.n / width; i += segment.stride) {
        const vector<KEY_X, width> g = load_vector<width>(gate, i), u = load_vector<width>(up, i);
        float out[width];
#pragma unroll
        for (uint32_t j = 0; j < width; j++) out[j] = g[j] * gate_sigmoid(g[j]) * u[j];
        store_vector(y, i, out);
    }
}

KERNEL(swiglu_fwd_params) {
    begin_early();
    if (p.n % WIDTH_OF(KEY_X) == 0)
        forward<WIDTH_OF(KEY_X)>(p);
    else
        forward<1>(p);
}
