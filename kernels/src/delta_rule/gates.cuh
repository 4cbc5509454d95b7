// Gates of the tokens of a chunk, and factors of its queries and keys.
#pragma once
#include "delta_rule/chunk.cuh"
#include "vector.cuh"

// e^x for x <= 0: exponents are masked first, as those of the other half of a chunk overflow.
__device__ __forceinline__ float decayed(float x) { return exp2_ftz(LOG2_E * x); }

// The log of a token's decay, -e^a_log log(1 + e^x) with x = a + dt_bias.
__device__ __forceinline__ float log_decay(float a, float a_log, float dt_bias) {
    const float x = a + dt_bias, e = exp2_ftz(LOG2_E * fminf(x, 20.0f)), sum = 1.0f + e;
    // The logarithm is that of the rounded sum: the quotient corrects what rounding lost of a small e.
    const float softplus = sum == 1.0f ? e : logf(sum) * e * reciprocal_ftz(sum - 1.0f);
    return -exp2_ftz(LOG2_E * a_log) * (x > 20.0f ? x : softplus);
}

// The factor that normalizes a query or a key, of the sum of its elements' squares.
__device__ __forceinline__ float factor_of(bool is_query, float squares) {
    return reciprocal_ftz(sqrt_ftz(squares + 1e-6f) * (is_query ? 11.313708499f : 1.0f)); // sqrt(128)
}

// Likewise, of elements 8 * `i` at `load(i)`.
template <typename Load> __device__ __forceinline__ float factor_of(bool is_query, const Load& load) {
    float sums[8] = {};
#pragma unroll 4
    for (uint32_t i = 0; i < HEAD / 8; i++) {
        const auto values = load(i);
#pragma unroll
        for (uint32_t e = 0; e < 8; e++) sums[e] = fmaf(values[e], values[e], sums[e]);
    }
#pragma unroll
    for (uint32_t distance = 4; distance > 0; distance /= 2)
#pragma unroll
        for (uint32_t e = 0; e < distance; e++) sums[e] += sums[e + distance];
    return factor_of(is_query, sums[0]);
}

// A chunk's tokens in a head: zeros behind the last, where decays stay what they are.
struct Gates {
    float decay[CHUNK]; // log of all decays in the chunk up to the token's own
    float beta[CHUNK];
    float of_query[CHUNK], of_key[CHUNK]; // factors
    float log[CHUNK];                     // log of the token's own decay
};

// Computes decays and step sizes, and writes them; threads find them behind a sync_block.
__device__ __forceinline__ void solve_gates(const delta_rule_solve_params& p, Gates& gates, Chunk chunk,
                                            uint32_t head) {
    const uint32_t row = threadIdx.x % CHUNK;
    const bool valid = row < chunk.rows;
    const uint64_t token = chunk.first + row, index = token * p.value_heads + head;
    const KEY_X* b = (const KEY_X*)p.gates + token * p.gate_columns + p.b_column + head;
    if (threadIdx.x < CHUNK) {
        const float* rates = (const float*)p.rates;
        const float a_log = rates[head], dt_bias = rates[p.value_heads + head];
        gates.log[row] = valid ? log_decay(to_float(b[p.value_heads]), a_log, dt_bias) : 0.0f;
    } else {
        const float beta = valid ? round_to<KEY_X>(sigmoid(to_float(*b))) : 0.0f;
        gates.beta[row] = beta;
        if (valid) ((float*)p.beta)[index] = beta;
    }
    sync_block();
    if (threadIdx.x < CHUNK) {
        float sum = 0.0f; // from token to token, as decoding adds them
#pragma unroll 4
        for (uint32_t first = 0; first < CHUNK; first += 4) {
            const float4_t logs = load4(gates.log + first);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) sum += first + i <= row ? logs.v[i] : 0.0f;
        }
        gates.decay[row] = sum;
        if (valid) ((float*)p.decay)[index] = sum;
    }
}

// Computes the factors of `load(is_query, row)(i)`, and writes them; threads find them behind a sync_block.
template <typename Load>
__device__ __forceinline__ void solve_factors(const delta_rule_solve_params& p, Gates& gates, Chunk chunk,
                                              uint32_t head, const Load& load) {
    const uint32_t row = threadIdx.x % CHUNK, group = p.value_heads / p.key_heads;
    const bool is_query = threadIdx.x < CHUNK, valid = row < chunk.rows;
    const float factor = valid ? factor_of(is_query, load(is_query, row)) : 0.0f;
    (is_query ? gates.of_query : gates.of_key)[row] = factor;
    const uint64_t index = (uint64_t(chunk.first + row) * 2 + (is_query ? 0 : 1)) * p.key_heads + head / group;
    if (valid && head % group == 0) ((float*)p.scale)[index] = factor;
}
