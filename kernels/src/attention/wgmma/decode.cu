// Attention of decoded rows on wgmma: a CTA is one warpgroup, whose rows are the query heads of a row that share a
// key/value head, all at the row's position. Later positions of the pool are hidden, and zeros, whatever lies there.
// Bound: memory. Reads the keys and values of a row's slot once, a tile ahead, in a step from before the end of the
// launch in front, which stores the row's own.
// Source: Dao, "FlashAttention-2", 2023; the mainloop of fwd.cu, for its bits.
#include "attention/decode.cuh"
#include "attention/wgmma/tile.cuh"
#include "early.cuh"

enum : uint32_t {
    ROWS = 64,
    KEYS = VARIANT_KEYS, // per tile
    N = KEYS / 8,
    STAGES = VARIANT_STAGES,
    WIDE = KEY_D > 128, // half a stage more
    TILE_BYTES = KEYS * KEY_D * 2,
};

// Rows of KEY_D elements.
__device__ __forceinline__ Rows<false> dense_rows(address data, uint64_t element) {
    return {(unsigned char*)data + element * 2, 1, 0, KEY_D * 2};
}

KERNEL(attention_decode_params) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32_t lane = threadIdx.x % WARP;
    const DecodeRow row = decode_row(p);
    const uint32_t first = blockIdx.z * ROWS, own = row.position, end = own + 1; // first: head of the group
    const uint32_t q = shared_address(memory), stages = q + ROWS * KEY_D * 2;
    const Rows<false> o_heads = dense_rows(p.o, row.o);
    if (row.slot == IDLE_SLOT) {
        begin_early();
        const float zeros[CHUNKS][4] = {};
        store_rows(o_heads, first, row.group, q, zeros, 1.0f);
        return;
    }
    const Rows<false> keys = dense_rows(p.keys, row.pool), values = dense_rows(p.values, row.pool);
    const uint32_t tiles = own / KEYS + 1, first_tile = first_key(own) / KEYS;
    const uint32_t position[2] = {own, own}, first_position = own, last_position = own;
    const float scale_log2 = p.scale * LOG2_E;

    const auto copy_tile = [&](uint32_t tile, uint32_t k, uint32_t v) {
        copy_rows<KEYS, VARIANT_THREADS>(k, keys, tile * KEYS, end);
        copy_rows<KEYS, VARIANT_THREADS>(v, values, tile * KEYS, end);
    };
    const auto copy_stage = [&](uint32_t tile, uint32_t k, uint32_t v) {
        if (tile < tiles) copy_tile(tile, k, v);
        cp_async_commit();
    };
    const bool is_ahead = p.is_step && first_tile + 1 < tiles; // of the row's own key
    if (is_ahead) copy_tile(first_tile, stages, stages + TILE_BYTES);
    begin_early();
    copy_rows<ROWS, WARPGROUP>(q, dense_rows(p.qkv, row.queries), first, row.group);
    if (!is_ahead) copy_tile(first_tile, stages, stages + TILE_BYTES);
    cp_async_commit();

#include "attention/wgmma/mainloop.cuh"

#pragma unroll
    for (uint32_t half = 0; half < 2; half++) softmax.finish(o, half);
    store_rows(o_heads, first, row.group, q, o, 1.0f);
}
