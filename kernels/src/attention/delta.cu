// delta = row sums of o * do: what the softmax backward subtracts.
// One warp a row; lanes read consecutive elements.
// Memory bound.
#include "device.cuh"
#include "attention.h"

KERNEL(attention_delta_params) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t row = blockIdx.x * (VARIANT_THREADS / WARP) + threadIdx.x / WARP; // (batch, position, head)
    if (row >= p.batch * p.seq_len * p.heads) return;
    const KEY_X* o = (const KEY_X*)p.o + uint64_t(row) * KEY_D;
    const KEY_X* d_o = (const KEY_X*)p.d_o + uint64_t(row) * KEY_D;
    float sum = 0.0f;
    for (uint32_t i = lane; i < KEY_D; i += WARP) sum += to_float(o[i]) * to_float(d_o[i]);
    sum = group_sum(sum);
    const uint32_t head = row % p.heads, token = row / p.heads;
    const uint32_t batch = token / p.seq_len, position = token % p.seq_len;
    if (lane == 0) ((float*)p.delta)[(uint64_t(batch) * p.heads + head) * p.seq_len + position] = sum;
}
