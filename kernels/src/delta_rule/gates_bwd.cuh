// Gradients of the gates of a value head, from those of the logs of its decays and of its step sizes.
#pragma once
#include "delta_rule/chunk.cuh"
#include "vector.cuh"

// Writes those of a chunk's tokens, and the sums for the decay's parameters: one warp, two tokens a lane. `dlog` and
// `dbeta` are zeros behind the last token.
__device__ __forceinline__ void store_gates(const delta_rule_bwd_params& p, Chunk chunk, uint32_t index, uint32_t head,
                                            const float* dlog, const float* dbeta) {
    const uint32_t lane = threadIdx.x % WARP;
    const float own[2] = {dlog[2 * lane], dlog[2 * lane + 1]};
    // A token's decay acts on all behind it.
    float behind = own[0] + own[1];
#pragma unroll
    for (uint32_t distance = 1; distance < WARP; distance *= 2) {
        const float other = float_of(shuffle(bits_of(behind), (lane + distance) % WARP));
        if (lane + distance < WARP) behind += other;
    }
    float dg = float_of(shuffle(bits_of(behind), (lane + 1) % WARP));
    if (lane == WARP - 1) dg = 0.0f;

    const float* rates = (const float*)p.rates;
    const float rate = expf(rates[head]), dt_bias = rates[p.value_heads + head];
    float da_log = 0.0f, ddt_bias = 0.0f;
#pragma unroll
    for (uint32_t i = 2; i-- > 0;) {
        const uint32_t row = 2 * lane + i;
        dg += own[i];
        if (row >= chunk.rows) continue;
        const uint64_t token = chunk.first + row, b = token * p.gate_columns + p.b_column + head, a = b + p.value_heads;
        const float beta = ((const float*)p.beta)[token * p.value_heads + head];
        const float x = to_float(((const KEY_X*)p.gates)[a]) + dt_bias;
        const float da = -dg * rate * sigmoid(x);
        da_log -= dg * rate * (x > 20.0f ? x : log1pf(expf(x)));
        ddt_bias += da;
        ((KEY_X*)p.dgates)[b] = from_float<KEY_X>(dbeta[row] * beta * (1.0f - beta));
        ((KEY_X*)p.dgates)[a] = from_float<KEY_X>(da);
    }
    da_log = group_sum(da_log), ddt_bias = group_sum(ddt_bias);
    float* partial = (float*)p.partial + uint64_t(index) * 2 * p.value_heads + head;
    if (lane == 0) partial[0] = da_log, partial[p.value_heads] = ddt_bias;
}

// Writes the sums of a CTA that has no chunk.
__device__ __forceinline__ void store_no_gates(const delta_rule_bwd_params& p, uint32_t index, uint32_t first,
                                               uint32_t heads) {
    float* partial = (float*)p.partial + uint64_t(index) * 2 * p.value_heads + first;
    for (uint32_t head = threadIdx.x; head < heads; head += VARIANT_THREADS)
        partial[head] = 0.0f, partial[p.value_heads + head] = 0.0f;
}
