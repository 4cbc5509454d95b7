// Causal grouped-query attention forward on wgmma: a CTA owns a tile of rows of one key/value head's group, 64 per
// warpgroup, and loops over tiles of keys and values (mainloop.cuh). Tiles with most keys start first.
// Bound: tensor cores, and next to them the exponentials: one per 2 d multiply-adds, at 16 a clock and SM against 4096.
// Source: Dao, "FlashAttention-2", 2023; Shah et al., "FlashAttention-3", 2024 (overlap).
#include "early.cuh"
#include "attention/wgmma/tile.cuh"

enum : uint32_t {
    ROWS = VARIANT_THREADS / WARPGROUP * 64, // per CTA
    KEYS = VARIANT_KEYS,                     // per tile
    N = KEYS / 8,
    STAGES = VARIANT_STAGES,
    WIDE = KEY_D > 128, // half a stage more
    Q_BYTES = 64 * KEY_D * 2, // per warpgroup
    TILE_BYTES = KEYS * KEY_D * 2,
};

KERNEL(attention_fwd_params) {
    begin_early();
    DYNAMIC_SHARED(unsigned char, memory);
    const uint32_t lane = threadIdx.x % WARP, warpgroup = warpgroup_index();
    const uint32_t group = p.heads / p.kv_heads, columns = p.heads + 2 * p.kv_heads, kv_head = blockIdx.x % p.kv_heads;
    const SequenceTile sequence = sequence_tile<ROWS>(p.sequences, p.count, group, blockIdx.x / p.kv_heads);
    if (sequence.length == 0) return;
    const uint32_t total_rows = sequence.length * group, first = sequence.tile * ROWS, own = first + warpgroup * 64;
    const Rows<true> queries = rows_of<true>(p.qkv, sequence, columns, kv_head * group, group);
    const Rows<false> keys = rows_of<false>(p.qkv, sequence, columns, p.heads + kv_head, 1);
    const Rows<false> values = rows_of<false>(p.qkv, sequence, columns, p.heads + p.kv_heads + kv_head, 1);
    const uint32_t q = (shared_address(memory) + 1023) / 1024 * 1024 + warpgroup * Q_BYTES;
    const uint32_t stages = (shared_address(memory) + 1023) / 1024 * 1024 + ROWS * KEY_D * 2;
    const uint32_t last = (first + ROWS < total_rows ? first + ROWS : total_rows) - 1; // last row of this CTA
    const uint32_t tiles = queries.position(last) / KEYS + 1, first_tile = first_key(queries.position(first)) / KEYS;
    const float scale_log2 = p.scale * LOG2_E;

    copy_rows<64, WARPGROUP>(q, queries, own, total_rows);
    const auto copy_stage = [&](uint32_t tile, uint32_t k, uint32_t v) {
        if (tile < tiles) {
            copy_rows<KEYS, VARIANT_THREADS>(k, keys, tile * KEYS, sequence.length);
            copy_rows<KEYS, VARIANT_THREADS>(v, values, tile * KEYS, sequence.length);
        }
        cp_async_commit();
    };
    copy_stage(first_tile, stages, stages + TILE_BYTES);

    // This thread's two rows.
    const uint32_t row = own + threadIdx.x % WARPGROUP / WARP * 16 + lane / 4;
    const uint32_t position[2] = {queries.position(row), queries.position(row + 8)};
    const uint32_t first_position = queries.position(own), last_position = queries.position(own + 63);
#include "attention/wgmma/mainloop.cuh"

    float* lse = (float*)p.lse + uint64_t(kv_head * group) * p.tokens + sequence.first;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        softmax.finish(o, half);
        const uint32_t head = row + half * 8 - position[half] * group;
        if (lane % 4 == 0 && row + half * 8 < total_rows)
            lse[uint64_t(head) * p.tokens + position[half]] = softmax.log_sum_exp(half, p.scale);
    }
    store_rows(rows_of<true>(p.o, sequence, p.heads, kv_head * group, group), own, total_rows, q, o, 1.0f);
}
