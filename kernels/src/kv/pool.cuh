// A pool of keys, or of values: [slots, kv_heads, seq_len, KEY_D], so that a head's positions are contiguous.
#pragma once
#include "kv.h"

struct Pool {
    uint32_t kv_heads, seq_len;
    // The first element of a head at a position.
    __device__ __forceinline__ uint64_t at(uint32_t slot, uint32_t kv_head, uint32_t position) const {
        return ((uint64_t(slot) * kv_heads + kv_head) * seq_len + position) * KEY_D;
    }
};
