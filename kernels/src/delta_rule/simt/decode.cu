// Rows of slots, one after the other, in f32 on CUDA cores: a CTA for a run and a value head, a thread for a column.
// Sums have the order of solve.cu and fwd.cu.
// Bound: latency. Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/decode.cuh"
#include "delta_rule/simt/row.cuh"

// Sums rows of a column, each times a factor.
template <typename Rows> __device__ __forceinline__ float mix(const float* factors, uint32_t end, const Rows& of_row) {
    float sum = 0.0f;
    for (uint32_t j = 0; j < end; j++) sum = fmaf(factors[j], of_row(j), sum);
    return sum;
}

KERNEL(delta_rule_decode_params) {
    DYNAMIC_SHARED(float, shared);
    float(*v_new)[HEAD] = (float(*)[HEAD])shared;
    float *system = shared + CHUNK * HEAD, *scores = system + CHUNK; // of the row, the system negated
    Gates& gates = *(Gates*)(scores + CHUNK);
    const Decoded own(p);
    const uint32_t column = threadIdx.x;
    if (own.run.slot == IDLE_SLOT) own.o(0)[column] = 0.0f;

    for (uint32_t index = 0; index < own.run.rows; index++) {
        const uint32_t position = own.run.position + index, row = position % CHUNK;
        const bool has_before = position >= CHUNK;
        const float *query = own.query_of(index), *key = own.key_of(index);
        // Keys of the run are where they were given, as another CTA stores them in the pool.
        const auto chunk_key = [&](uint32_t j) {
            return row - j <= index ? own.key_of(index - (row - j)) : own.keys() + j * HEAD;
        };
        const auto read = [&](const float* of) {
            float sum = 0.0f;
            for (uint32_t i = 0; i < HEAD; i++) sum = fmaf(of[i], own.rounded()[fragment_index(i, column)], sum);
            return has_before ? sum : 0.0f;
        };
        const auto change = [&](uint32_t j) { return own.change()[j * HEAD + column]; };

        if (index == 0) {
            if (column < row) gates.decay[column] = own.decay()[column], gates.of_key[column] = own.scale()[column];
            for (uint32_t j = 0; j < row; j++) v_new[j][column] = mix(own.inverse() + j * CHUNK, j + 1, change);
        }
        sync_block();
        if (column < 2) {
            const float factor = factor_of(column == 0, Row{column == 0 ? query : key});
            (column == 0 ? gates.of_query : gates.of_key)[row] = factor;
            if (column == 1 && own.leads) own.scale()[row] = factor;
        } else if (column == 2) {
            // Rounded before it is added, as solve.cu has it in memory.
            const float decay = fma_rn(own.log_decay_of(index), 1.0f, row > 0 ? gates.decay[row - 1] : 0.0f);
            own.decay()[row] = gates.decay[row] = decay;
        } else if (column == 3) {
            gates.beta[row] = own.beta_of(index);
        }
        if (own.leads) own.keys()[row * HEAD + column] = key[column];
        sync_block();
        const uint32_t j = column % CHUNK;
        if (j <= row) {
            const float decay = decayed(gates.decay[row] - gates.decay[j]) * gates.of_key[j];
            if (column < CHUNK)
                scores[j] = gates.of_query[row] * decay * dot(query, chunk_key(j));
            else
                system[j] = -(gates.beta[row] * gates.of_key[row] * decay * dot(key, chunk_key(j)));
        }
        sync_block();
        if (column < CHUNK) {
            float sum = row == column ? 1.0f : 0.0f;
            for (uint32_t j = column; j < row; j++) sum = fmaf(system[j], own.inverse()[j * CHUNK + column], sum);
            own.inverse()[row * CHUNK + column] = sum;
        }
        const float predicted = decayed(gates.decay[row]) * gates.of_key[row] * read(key);
        own.change()[row * HEAD + column] = gates.beta[row] * (own.value_of(index)[column] - predicted);
        sync_block();
        v_new[row][column] = mix(own.inverse() + row * CHUNK, row + 1, change);
        const float of_state = decayed(gates.decay[row]) * gates.of_query[row] * read(query);
        own.o(index)[column] = of_state + mix(scores, row + 1, [&](uint32_t j) { return v_new[j][column]; });
        if (row + 1 < CHUNK) continue;

        const float last = gates.decay[row];
        for (uint32_t j = 0; j < CHUNK; j++) v_new[j][column] *= decayed(last - gates.decay[j]) * gates.of_key[j];
        for (uint32_t i = 0; i < HEAD; i++) {
            float sum = decayed(last) * (has_before ? own.state()[i * HEAD + column] : 0.0f);
            for (uint32_t j = 0; j < CHUNK; j++) sum = fmaf(chunk_key(j)[i], v_new[j][column], sum);
            own.state()[i * HEAD + column] = own.rounded()[fragment_index(i, column)] = sum;
        }
        sync_block(); // gates have been read
    }
}
