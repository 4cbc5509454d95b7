// Gradients of heads and gates for a frozen gamma, see gradient.cuh. A few lanes take a head, a vector each.
// Bound: memory. Reads heads, gates and dy once, writes both gradients once.
// Source: the gradient of fwd.cu; Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "gated_norm/gradient.cuh"

KERNEL(gated_norm_dgrad_params) {
    const uint32_t item = blockIdx.x * GROUPS + threadIdx.x / LANES;
    const Place at(p, item);
    const bool valid = item < p.tokens * p.heads && at.column < KEY_D;
    Share head;
    head.load(p, at, valid);
    Vector gamma = {};
    if (valid) gamma = load_vector<WIDTH>((const KEY_X*)p.gamma + at.column, 0);
    const Gradient gradient(head, gamma, p.eps);
    if (valid) gradient.store(p, at);
}
