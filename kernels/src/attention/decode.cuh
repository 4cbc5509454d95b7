// What a CTA of decoding attends with: a row's query heads of one key/value head, which are adjacent, from `first` on;
// the head's keys and values in the row's slot; and its place in the output. Elements are KEY_X.
#pragma once
#include "attention_decode.h"
#include "device.cuh"
#include "kv/pool.cuh"

struct DecodeRow {
    uint32_t slot, position, group; // group: query heads of the key/value head
    uint64_t queries, pool, o;      // elements in `qkv`, in `keys` and `values`, and in `o`
};

// CTAs along x are rows, along y key/value heads, along z tiles of a group.
__device__ __forceinline__ DecodeRow decode_row(const attention_decode_params& p) {
    const uint32_t row = blockIdx.x, kv_head = blockIdx.y, group = p.heads / p.kv_heads;
    DecodeRow own;
    own.slot = ((const uint32_t*)p.slot)[row];
    own.position = ((const uint32_t*)p.position)[row];
    own.group = group;
    own.queries = (uint64_t(row) * (p.heads + 2 * p.kv_heads) + kv_head * group) * KEY_D;
    own.pool = Pool{p.kv_heads, p.seq_len}.at(own.slot, kv_head, 0);
    own.o = (uint64_t(row) * p.heads + kv_head * group) * KEY_D;
    return own;
}
