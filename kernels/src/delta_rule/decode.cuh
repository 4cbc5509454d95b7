// A CTA of decoding: a run of rows, a value head, and their places in the pool.
#pragma once
#include "delta_rule/gates.cuh"
#include "delta_rule_decode.h"
#include "kv/run.cuh"

// Index of an element of a rounded state: a lane of `mma` finds its elements of operand b side by side.
__device__ __forceinline__ uint32_t fragment_index(uint32_t row, uint32_t column) {
    const uint32_t tile = column / 16 * (HEAD / 16) + row / 16, lane = column % 8 * 4 + row % 8 / 2;
    return (tile * WARP + lane) * 8 + column % 16 / 8 * 4 + row % 16 / 8 * 2 + row % 2;
}

// Addresses are made where they are read: registers do not hold all of them.
struct Decoded {
    const delta_rule_decode_params& p;
    Run run;
    uint32_t row, head, key_head;   // row: the run's first
    uint32_t value_slot, key_slot;  // indices of the slot's heads in the pool
    bool leads;                     // it stores what value heads of a key head share

    __device__ __forceinline__ explicit Decoded(const delta_rule_decode_params& p) : p(p) {
        row = blockIdx.x / p.value_heads, head = blockIdx.x % p.value_heads;
        const uint32_t group = p.value_heads / p.key_heads;
        key_head = head / group, leads = head % group == 0;
        run = run_of(p.slot, p.position, row, p.rows);
        value_slot = run.slot * p.value_heads + head, key_slot = run.slot * p.key_heads + key_head;
    }

    // Heads of a row of the run.
    __device__ __forceinline__ const KEY_X* query_of(uint32_t index) const { return head_of(index, key_head); }
    __device__ __forceinline__ const KEY_X* key_of(uint32_t index) const {
        return head_of(index, p.key_heads + key_head);
    }
    __device__ __forceinline__ const KEY_X* value_of(uint32_t index) const {
        return head_of(index, 2 * p.key_heads + head);
    }
    __device__ __forceinline__ const KEY_X* head_of(uint32_t index, uint32_t of) const {
        return (const KEY_X*)p.qkv + (uint64_t(row + index) * (2 * p.key_heads + p.value_heads) + of) * HEAD;
    }
    __device__ __forceinline__ KEY_X* o(uint32_t index) const {
        return (KEY_X*)p.o + (uint64_t(row + index) * p.value_heads + head) * HEAD;
    }

    // Its gates.
    __device__ __forceinline__ float log_decay_of(uint32_t index) const {
        const float* rates = (const float*)p.rates;
        return log_decay(to_float(gate(index)[p.value_heads]), rates[head], rates[p.value_heads + head]);
    }
    __device__ __forceinline__ float beta_of(uint32_t index) const {
        return round_to<KEY_X>(sigmoid(to_float(*gate(index))));
    }
    __device__ __forceinline__ const KEY_X* gate(uint32_t index) const {
        return (const KEY_X*)p.gates + uint64_t(row + index) * p.gate_columns + p.b_column + head;
    }

    // The slot's.
    __device__ __forceinline__ float* state() const { return (float*)p.states + uint64_t(value_slot) * HEAD * HEAD; }
    __device__ __forceinline__ KEY_X* rounded() const { return (KEY_X*)p.rounded + uint64_t(value_slot) * HEAD * HEAD; }
    __device__ __forceinline__ float* decay() const { return (float*)p.decay + uint64_t(value_slot) * CHUNK; }
    __device__ __forceinline__ float* inverse() const {
        return (float*)p.inverse + uint64_t(value_slot) * CHUNK * CHUNK;
    }
    __device__ __forceinline__ KEY_X* change() const { return (KEY_X*)p.change + uint64_t(value_slot) * CHUNK * HEAD; }
    __device__ __forceinline__ KEY_X* keys() const { return (KEY_X*)p.keys + uint64_t(key_slot) * CHUNK * HEAD; }
    __device__ __forceinline__ float* scale() const { return (float*)p.scale + uint64_t(key_slot) * CHUNK; }
};
