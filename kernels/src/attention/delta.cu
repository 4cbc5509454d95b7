// delta = row sums of o * do: the softmax backward subtracts it. A group of lanes takes a row, eight elements each:
// neighboring lanes read neighboring vectors.
// Bound: memory. Reads o and do once. Source: Dao, "FlashAttention-2", 2023.
#include "device.cuh"
#include "attention.h"

enum : uint32_t {
    ROW_LANES = KEY_D <= 16 ? 2 : KEY_D <= 32 ? 4 : KEY_D <= 64 ? 8 : KEY_D <= 128 ? 16 : 32, // lanes per row
};

KERNEL(attention_delta_params) {
    const uint32_t row = (blockIdx.x * VARIANT_THREADS + threadIdx.x) / ROW_LANES; // (token, head)
    const uint32_t first = threadIdx.x % ROW_LANES * 8;
    const bool valid = row < p.tokens * p.heads;
    float sum = 0.0f;
    if (valid && first < KEY_D) {
        const KEY_X* o = (const KEY_X*)p.o + uint64_t(row) * KEY_D + first;
        const KEY_X* d_o = (const KEY_X*)p.d_o + uint64_t(row) * KEY_D + first;
        const float4_t a[2] = {load4(o), load4(o + 4)}, b[2] = {load4(d_o), load4(d_o + 4)};
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) sum += a[i / 4].v[i % 4] * b[i / 4].v[i % 4];
    }
    sum = group_sum<ROW_LANES>(sum);
    const uint32_t head = row % p.heads, token = row / p.heads;
    if (valid && first == 0) ((float*)p.delta)[uint64_t(head) * p.tokens + token] = sum;
}
