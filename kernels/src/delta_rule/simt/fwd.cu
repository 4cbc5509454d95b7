// States from chunk to chunk, in f32 on CUDA cores: a CTA for columns of a sequence's state of a value head.
// Bound: operations. Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/gates.cuh"

enum : uint32_t { COLUMNS = VARIANT_COLUMNS };

// Behind what was computed before, `body(n, row, column)` of all elements n of so many rows.
template <typename Body> __device__ __forceinline__ void each(uint32_t rows, const Body& body) {
    sync_block();
    for (uint32_t n = threadIdx.x; n < rows * COLUMNS; n += VARIANT_THREADS) body(n, n / COLUMNS, n % COLUMNS);
}

KERNEL(delta_rule_fwd_params) {
    DYNAMIC_SHARED(float, state);
    float *change = state + HEAD * COLUMNS, *v_new = change + CHUNK * COLUMNS;
    const uint32_t slice = blockIdx.x % (HEAD / COLUMNS) * COLUMNS, unit = blockIdx.x / (HEAD / COLUMNS);
    const uint32_t head = unit % p.value_heads, key_head = head / (p.value_heads / p.key_heads);
    const Sequence own = ((const Sequence*)p.sequences)[unit / p.value_heads];
    const uint64_t stride = (2 * p.key_heads + p.value_heads) * HEAD;

    for (uint32_t n = threadIdx.x; n < HEAD * COLUMNS; n += VARIANT_THREADS) state[n] = 0.0f;
    for (uint32_t index = 0; index * CHUNK < own.length; index++) {
        const Chunk chunk = chunk_of(own, index);
        const uint64_t first = uint64_t(chunk.first) * p.value_heads + head; // token and head
        const float* queries = (const float*)p.qkv + chunk.first * stride + key_head * HEAD;
        const float* keys = queries + p.key_heads * HEAD;
        const float* values = queries + (2 * p.key_heads + head - key_head) * HEAD + slice;
        const auto decay = [&](uint32_t row) { return ((const float*)p.decay)[first + row * p.value_heads]; };
        const auto factor = [&](uint32_t part, uint32_t row) {
            return ((const float*)p.scale)[(uint64_t(chunk.first + row) * 2 + part) * p.key_heads + key_head];
        };
        // A row of queries or keys times a column of the state, and a row of this chunk's matrices times a column.
        const auto read = [&](const float* rows, uint32_t row, uint32_t column) {
            float sum = 0.0f;
            for (uint32_t i = 0; i < HEAD; i++) sum = fmaf(rows[row * stride + i], state[i * COLUMNS + column], sum);
            return sum;
        };
        const auto mix = [&](address matrix, uint32_t row, const float* rows, uint32_t column) {
            const float* factors = (const float*)matrix + (first + row * p.value_heads) * CHUNK;
            float sum = 0.0f;
            for (uint32_t j = 0; j < chunk.rows; j++) sum = fmaf(factors[j], rows[j * COLUMNS + column], sum);
            return sum;
        };

        each(chunk.rows, [&](uint32_t n, uint32_t row, uint32_t column) {
            const float predicted = decayed(decay(row)) * factor(1, row) * read(keys, row, column);
            const float beta = ((const float*)p.beta)[first + row * p.value_heads];
            change[n] = beta * (values[row * stride + column] - predicted);
        });
        each(chunk.rows, [&](uint32_t n, uint32_t row, uint32_t column) {
            v_new[n] = mix(p.inverse, row, change, column);
            if (KEY_KEEP) ((float*)p.v_new)[(first + row * p.value_heads) * HEAD + slice + column] = v_new[n];
        });
        each(chunk.rows, [&](uint32_t, uint32_t row, uint32_t column) {
            const float of_state = decayed(decay(row)) * factor(0, row) * read(queries, row, column);
            const float o = of_state + mix(p.scores, row, v_new, column);
            ((float*)p.o)[(first + row * p.value_heads) * HEAD + slice + column] = o;
        });
        if (!chunk.has_behind) break;
        const float last = decay(chunk.rows - 1);
        each(chunk.rows, [&](uint32_t n, uint32_t row, uint32_t) {
            v_new[n] *= decayed(last - decay(row)) * factor(1, row); // as it is written to the state
        });
        each(HEAD, [&](uint32_t n, uint32_t row, uint32_t column) {
            float sum = decayed(last) * state[n];
            for (uint32_t j = 0; j < chunk.rows; j++)
                sum = fmaf(keys[j * stride + row], v_new[j * COLUMNS + column], sum);
            state[n] = sum;
            if (KEY_KEEP) {
                const uint64_t slot = uint64_t(chunk.behind()) * p.value_heads + head;
                ((float*)p.states)[(slot * HEAD + row) * HEAD + slice + column] = sum;
            }
        });
    }
}
