// RMSNorm of each head, times gamma and the gate's SiLU. The normalized head is rounded before gamma multiplies it, as
// the model's own layers round it. A few lanes take a head, a vector each.
// Bound: memory. Reads heads and their gates once, writes y once.
// Source: Hugging Face's `Qwen3_5RMSNormGated`; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "early.cuh"
#include "gated_norm/head.cuh"

KERNEL(gated_norm_fwd_params) {
    begin_early();
    const uint32_t item = blockIdx.x * GROUPS + threadIdx.x / LANES;
    const Place at(p, item);
    const bool valid = item < p.tokens * p.heads && at.column < KEY_D;
    Vector x = {}, gates = {}, gamma = {};
    if (valid) {
        x = load_vector<WIDTH>((const KEY_X*)p.x + at.head, 0);
        gates = at.load_gates((const KEY_X*)p.gates);
        gamma = load_vector<WIDTH>((const KEY_X*)p.gamma + at.column, 0);
    }
    const float rstd = rstd_of(x, p.eps);
    if (!valid) return;
    float y[WIDTH];
#pragma unroll
    for (uint32_t i = 0; i < WIDTH; i++)
        y[i] = gamma[i] * round_to<KEY_X>(x[i] * rstd) * (gates[i] * gate_sigmoid(gates[i]));
    store_vector((KEY_X*)p.y + at.head, 0, y);
}
