// SwiGLU backward: dgate = dy * up * s * (1 + gate * (1 - s)), dup = dy * gate * s, s = sigmoid(gate); or GeGLU's
// (gate.cuh). The sigmoid is recomputed from the saved gate: cheaper than reading it back. A few CTAs per token.
// Bound: memory, in 16-byte vectors where the row length allows it.
// Source: Shazeer, "GLU Variants Improve Transformer", 2020.
#include "early.cuh"
#include "gate.cuh"
#include "swiglu/segment.cuh"

template <uint32_t width> __device__ __forceinline__ void backward(const swiglu_bwd_params& p) {
    const Segment segment = segment_of(p.tokens);
    const uint64_t row = uint64_t(segment.token) * 2 * p.n;
    const KEY_X* gate = (const KEY_X*)p.gate_up + row;
    const KEY_X* up = gate + p.n;
    const KEY_X* dy = (const KEY_X*)p.dy + uint64_t(segment.token) * p.n;
    KEY_X* dgate = (KEY_X*)p.dgate_up + row;
    KEY_X* dup = dgate + p.n;
    for (uint32_t i = segment.first; i < p.n / width; i += segment.stride) {
        const vector<KEY_X, width> g = load_vector<width>(gate, i), u = load_vector<width>(up, i),
                                   d = load_vector<width>(dy, i);
        float dg[width], du[width];
#pragma unroll
        for (uint32_t j = 0; j < width; j++) {
            const float s = gate_sigmoid(g[j]), ds = d[j] * s;
            dg[j] = ds * u[j] * gate_slope(g[j], s);
            du[j] = ds * g[j];
        }
        store_vector(dgate, i, dg);
        store_vector(dup, i, du);
    }
}

KERNEL(swiglu_bwd_params) {
    begin_early();
    if (p.n % WIDTH_OF(KEY_X) == 0)
        backward<WIDTH_OF(KEY_X)>(p);
    else
        backward<1>(p);
}
