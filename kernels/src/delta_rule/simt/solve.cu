// What a chunk takes of itself alone, in f32 on CUDA cores: a CTA for each chunk and value head.
// Bound: operations. Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/gates.cuh"
#include "delta_rule/simt/row.cuh"

KERNEL(delta_rule_solve_params) {
    DYNAMIC_SHARED(float, system); // negated
    float* inverse = system + CHUNK * CHUNK;
    Gates& gates = *(Gates*)(inverse + CHUNK * CHUNK);
    const uint32_t head = blockIdx.x % p.value_heads, key_head = head / (p.value_heads / p.key_heads);
    const Chunk chunk = chunk_of(p.sequences, p.count, blockIdx.x / p.value_heads);
    if (chunk.rows == 0) return;
    const uint64_t stride = (2 * p.key_heads + p.value_heads) * HEAD;
    const float* queries = (const float*)p.qkv + chunk.first * stride + key_head * HEAD;
    const float* keys = queries + p.key_heads * HEAD;

    solve_gates(p, gates, chunk, head);
    solve_factors(p, gates, chunk, head,
                  [&](bool is_query, uint32_t row) { return Row{(is_query ? queries : keys) + row * stride}; });
    sync_block();

    const uint64_t out = (uint64_t(chunk.first) * p.value_heads + head) * CHUNK, out_stride = p.value_heads * CHUNK;
    for (uint32_t n = threadIdx.x; n < chunk.rows * CHUNK; n += VARIANT_THREADS) {
        const uint32_t i = n / CHUNK, j = n % CHUNK;
        float score = 0.0f;
        if (j <= i) {
            const float decay = decayed(gates.decay[i] - gates.decay[j]) * gates.of_key[j];
            score = gates.of_query[i] * decay * dot(queries + i * stride, keys + j * stride);
            system[n] = -(gates.beta[i] * gates.of_key[i] * decay * dot(keys + i * stride, keys + j * stride));
        }
        ((float*)p.scores)[out + i * out_stride + j] = score;
    }
    sync_block();
    if (threadIdx.x < CHUNK) {
        const uint32_t column = threadIdx.x;
        for (uint32_t i = 0; i < chunk.rows; i++) {
            float sum = i == column ? 1.0f : 0.0f;
            for (uint32_t j = column; j < i; j++) sum = fmaf(system[i * CHUNK + j], inverse[j * CHUNK + column], sum);
            inverse[i * CHUNK + column] = sum;
            ((float*)p.inverse)[out + i * out_stride + column] = sum;
        }
    }
}
