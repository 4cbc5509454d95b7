// Attention of decoded rows on tensor cores: a CTA is one warp, whose queries are the query heads of a row that share a
// key/value head, all at the row's position. Later positions of the pool are hidden, and zeros, whatever lies there.
// Bound: memory. Reads the keys and values of a row's slot once, a tile ahead.
// Source: Dao, "FlashAttention-2", 2023; the mainloop of fwd.cu, for its bits.
#include "attention/decode.cuh"
#include "attention/mma/tile.cuh"

#define QUERY(row) own
#define SEQ_LEN end

enum : uint32_t {
    KEYS = VARIANT_KEYS, // per tile
    ROWS = 16,
    M = ROWS / 16,
    N = KEYS / 8,
    TILE_BYTES = KEYS * PITCH,
    Q_IN_REGISTERS = KEY_D <= 64,
};

KERNEL(attention_decode_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const uint32_t lane = threadIdx.x;
    const DecodeRow row = decode_row(p);
    const uint32_t first = blockIdx.z * ROWS, own = row.position, end = own + 1; // first: head of the group
    const uint32_t begin = first_key(own) / KEYS * KEYS;
    const uint32_t own_q = shared_address(memory), stages = own_q + ROWS * PITCH; // two stages of k and v
    const Head o_heads = {(bf16*)p.o + row.o, KEY_D};
    if (row.slot == IDLE_SLOT) {
        const float zeros[M][CHUNKS][4] = {};
        store_rows(o_heads, first, row.group, own_q, zeros);
        return;
    }
    const Head keys = {(bf16*)p.keys + row.pool, KEY_D}, values = {(bf16*)p.values + row.pool, KEY_D};
    const float scale_log2 = p.scale * LOG2_E;

    copy_rows<ROWS>(own_q, {(bf16*)p.qkv + row.queries, KEY_D}, first, row.group);
    copy_rows<KEYS>(stages, keys, begin, SEQ_LEN);
    copy_rows<KEYS>(stages + TILE_BYTES, values, begin, SEQ_LEN);
    cp_async_commit();

#include "attention/mma/mainloop.cuh"

#pragma unroll
    for (uint32_t half = 0; half < 2; half++) softmax[0].finish(o[0], half);
    store_rows(o_heads, first, row.group, own_q, o);
}
