// Gradients of the states of the gated delta rule in f32. Columns of a state do not depend on each other: a thread owns
// one of a value head's, and no thread waits for another.
// Bound: latency: a CTA a sequence and head, and operands that all of its threads read alike.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/chunk.cuh"
#include "vector.cuh"

KERNEL(delta_rule_state_bwd_params) {
    DYNAMIC_SHARED(float, shared);
    const uint32_t column = threadIdx.x, head = blockIdx.x % p.value_heads;
    const uint32_t key_head = head / (p.value_heads / p.key_heads), stride = (2 * p.key_heads + p.value_heads) * HEAD;
    const Sequence sequence = ((const Sequence*)p.sequences)[blockIdx.x / p.value_heads];
    float* dstate = shared + column; // rows are HEAD apart
    float* dv_new = dstate + HEAD * HEAD;
    for (uint32_t row = 0; row < HEAD; row++) dstate[row * HEAD] = 0.0f;
    for (uint32_t left = (sequence.length + CHUNK - 1) / CHUNK; left-- > 0;) {
        const Chunk chunk = chunk_of(sequence, left);
        const uint64_t first = chunk.first, gates = first * p.value_heads + head;
        const float* queries = (const float*)p.qkv + first * stride + key_head * HEAD;
        const float* keys = queries + p.key_heads * HEAD;
        const float* decays = (const float*)p.decay + gates;
        const float* betas = (const float*)p.beta + gates;
        const float* scales = (const float*)p.scale + first * 2 * p.key_heads + key_head;
        // Rows are value_heads * CHUNK apart.
        const float* scores = (const float*)p.scores + gates * CHUNK;
        const float* inverse = (const float*)p.inverse + gates * CHUNK;
        const float* d_o = (const float*)p.d_o + gates * HEAD + column;
        float* dvb = (float*)p.dvb + gates * HEAD + column;
        const float last = decays[(chunk.rows - 1) * p.value_heads];
        if (chunk.has_behind) {
            float* behind =
                (float*)p.dstates + (uint64_t(chunk.behind()) * p.value_heads + head) * HEAD * HEAD + column;
            for (uint32_t row = 0; row < HEAD; row++) behind[row * HEAD] = dstate[row * HEAD];
        }
        for (uint32_t i = 0; i < chunk.rows; i++) {
            float of_state = 0.0f, of_scores = 0.0f;
            for (uint32_t d = 0; d < HEAD; d++) of_state = fmaf(keys[i * stride + d], dstate[d * HEAD], of_state);
            for (uint32_t j = 0; j < chunk.rows; j++)
                of_scores = fmaf(scores[j * p.value_heads * CHUNK + i], d_o[j * p.value_heads * HEAD], of_scores);
            const float factor = expf(last - decays[i * p.value_heads]) * scales[i * 2 * p.key_heads + p.key_heads];
            dv_new[i * HEAD] = fmaf(factor, of_state, of_scores);
        }
        for (uint32_t i = 0; i < chunk.rows; i++) {
            float sum = 0.0f;
            for (uint32_t j = 0; j < chunk.rows; j++)
                sum = fmaf(inverse[j * p.value_heads * CHUNK + i], dv_new[j * HEAD], sum);
            dvb[i * p.value_heads * HEAD] = sum;
        }
        const float whole = expf(last);
        for (uint32_t row = 0; row < HEAD; row++) dstate[row * HEAD] *= whole;
        for (uint32_t i = 0; i < chunk.rows; i++) {
            const float grown = expf(decays[i * p.value_heads]);
            const float read = grown * scales[i * 2 * p.key_heads] * d_o[i * p.value_heads * HEAD];
            const float taken = betas[i * p.value_heads] * grown * scales[i * 2 * p.key_heads + p.key_heads]
                                * dvb[i * p.value_heads * HEAD];
            for (uint32_t row = 0; row < HEAD; row++) {
                const float sum = fmaf(queries[i * stride + row], read, dstate[row * HEAD]);
                dstate[row * HEAD] = fmaf(-keys[i * stride + row], taken, sum);
            }
        }
    }
}
