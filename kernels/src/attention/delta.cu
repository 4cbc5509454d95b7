// delta = row sums of o * do: what the softmax backward subtracts.
// A group of lanes takes a row, four elements each: neighbouring lanes read neighbouring vectors.
// Memory bound.
#include "device.cuh"
#include "attention.h"

enum : uint32_t {
    LANES = KEY_D <= 16 ? 4 : KEY_D <= 32 ? 8 : KEY_D <= 64 ? 16 : 32, // of a row: KEY_D / 4, to a power of two
};

KERNEL(attention_delta_params) {
    const uint32_t row = (blockIdx.x * VARIANT_THREADS + threadIdx.x) / LANES; // (batch, position, head)
    const uint32_t first = threadIdx.x % LANES * 4;
    const bool valid = row < p.batch * p.seq_len * p.heads;
    float sum = 0.0f;
    if (valid && first < KEY_D) {
        const uint64_t element = uint64_t(row) * KEY_D + first;
        const float4_t o = load4((const KEY_X*)p.o + element), d_o = load4((const KEY_X*)p.d_o + element);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) sum += o.v[i] * d_o.v[i];
    }
    sum = group_sum<LANES>(sum);
    const uint32_t head = row % p.heads, token = row / p.heads;
    const uint32_t batch = token / p.seq_len, position = token % p.seq_len;
    if (valid && first == 0) ((float*)p.delta)[(uint64_t(batch) * p.heads + head) * p.seq_len + position] = sum;
}
