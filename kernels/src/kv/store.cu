// Stores keys and values of rows in a pool, as bits. A CTA takes a row: its keys and values are adjacent, and each head
// of them goes to a place of its own.
// Bound: memory. Reads keys and values once and writes them once. Source: the layout of pool.cuh.
#include "early.cuh"
#include "kv/pool.cuh"
#include "vector.cuh"

KERNEL(kv_store_params) {
    begin_early();
    constexpr uint32_t width = WIDTH_OF(KEY_X), columns = KEY_D / width;
    typedef vector<KEY_X, width> Vector;
    const uint32_t row = blockIdx.x, slot = ((const uint32_t*)p.slot)[row];
    if (slot == IDLE_SLOT) return;
    const uint32_t position = ((const uint32_t*)p.position)[row];
    const KEY_X* from = (const KEY_X*)p.qkv + (uint64_t(row) * (p.heads + 2 * p.kv_heads) + p.heads) * KEY_D;
    const Pool pool = {p.kv_heads, p.seq_len};
    for (uint32_t i = threadIdx.x; i < 2 * p.kv_heads * columns; i += VARIANT_THREADS) {
        const uint32_t head = i / columns; // of keys, then of values
        const bool is_key = head < p.kv_heads;
        KEY_X* to = (KEY_X*)(is_key ? p.keys : p.values) + pool.at(slot, is_key ? head : head - p.kv_heads, position);
        ((Vector*)to)[i % columns] = load_vector<width>(from, i);
    }
}
