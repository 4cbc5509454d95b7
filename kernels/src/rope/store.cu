// Rotary embedding of rows in slots, see rotate.cuh: queries in place, keys on their way to the pool, which takes
// values as they are.
// A thread takes one vector of positions in HEADS neighboring query and key heads, or one vector of values.
// Bound: launch; memory where rows are many. Reads queries, keys and values once and writes them once.
// Source: Su et al., "RoFormer", 2021.
#include "kv/pool.cuh"
#include "rope/rotate.cuh"
#include "rope_store.h"

KERNEL(rope_store_params) {
    begin_early();
    constexpr uint32_t width = HALF % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1, columns = HALF / width;
    const uint32_t turned = p.heads + p.kv_heads, groups = (turned + HEADS - 1) / HEADS;
    const uint32_t items = groups * columns + p.kv_heads * (KEY_D / width); // of a row
    const uint32_t item = blockIdx.x * VARIANT_THREADS + threadIdx.x, index = item / items, within = item % items;
    if (index >= p.rows) return;
    const uint32_t slot = ((const uint32_t*)p.slot)[index], position = ((const uint32_t*)p.position)[index];
    if (slot == IDLE_SLOT) return;
    const Pool pool = {p.kv_heads, p.seq_len};
    KEY_X* row = (KEY_X*)p.qkv + uint64_t(index) * (turned + p.kv_heads) * KEY_D;
    if (within >= groups * columns) {
        const uint32_t i = within - groups * columns, head = i / (KEY_D / width), column = i % (KEY_D / width);
        KEY_X* to = (KEY_X*)p.values + pool.at(slot, head, position);
        ((vector<KEY_X, width>*)to)[column] = load_vector<width>(row + (turned + head) * KEY_D, column);
        return;
    }
    const uint32_t column = within % columns, first = within / columns * HEADS;
    const auto place = [&](uint32_t head) {
        return head < p.heads ? row + head * KEY_D : (KEY_X*)p.keys + pool.at(slot, head - p.heads, position);
    };
    rotate_heads<width>(row, first, turned, column, Angles<width>(p.cos, p.sin, position, column, 1.0f), place);
}
