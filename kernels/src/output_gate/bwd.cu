// Output gate backward: do = dy * s and dgate = dy * o * s * (1 - s), s = sigmoid(gate). The sigmoid is recomputed from
// the gate; only do is multiplied by the rounded one, as the forward pass was. A few CTAs per token, a vector per
// thread.
// Bound: memory. Reads outputs, gates and dy once, writes both gradients once.
// Source: Qiu et al., "Gated Attention for Large Language Models", 2025.
#include "output_gate/place.cuh"

KERNEL(output_gate_bwd_params) {
    const Place at = place_of(p.heads, p.row_heads);
    if (!at.valid) return;
    const Vector o = load_vector<WIDTH>((const KEY_X*)p.o + at.o, 0);
    const Vector dy = load_vector<WIDTH>((const KEY_X*)p.dy + at.o, 0);
    const Vector gate = load_vector<WIDTH>((const KEY_X*)p.packed + at.gate, 0);
    float d_o[WIDTH], dgate[WIDTH];
#pragma unroll
    for (uint32_t i = 0; i < WIDTH; i++) {
        const float s = sigmoid(gate[i]);
        d_o[i] = dy[i] * round_to<KEY_X>(s);
        dgate[i] = dy[i] * o[i] * (s * (1.0f - s));
    }
    store_vector((KEY_X*)p.d_o + at.o, 0, d_o);
    store_vector((KEY_X*)p.dpacked + at.gate, 0, dgate);
}
