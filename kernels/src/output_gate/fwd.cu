// Output gate forward: y = o * sigmoid(gate), the sigmoid rounded first, as the model's own layers round it. A few CTAs
// per token, a vector per thread.
// Bound: memory. Reads outputs and gates once, writes y once; queries between the gates are skipped.
// Source: Qiu et al., "Gated Attention for Large Language Models", 2025.
#include "output_gate/place.cuh"

KERNEL(output_gate_fwd_params) {
    const Place at = place_of(p.heads, p.row_heads);
    if (!at.valid) return;
    const Vector o = load_vector<WIDTH>((const KEY_X*)p.o + at.o, 0);
    const Vector gate = load_vector<WIDTH>((const KEY_X*)p.packed + at.gate, 0);
    float y[WIDTH];
#pragma unroll
    for (uint32_t i = 0; i < WIDTH; i++) y[i] = o[i] * round_to<KEY_X>(sigmoid(gate[i]));
    store_vector((KEY_X*)p.y + at.o, 0, y);
}
