// Causal grouped-query attention forward with online softmax on CUDA cores: no S x S buffer, one pass over the keys.
// A CTA owns a tile of queries of one head and loops over the key tiles up to its diagonal (mainloop.cuh).
// Bound: shared memory, which feeds every multiply-add of the two GEMMs.
// Source: Dao, "FlashAttention-2", 2023.
#include "attention/simt/mainloop.cuh"

KERNEL(attention_fwd_params) {
    DYNAMIC_SHARED(float, shared);
    const Tiles tiles(shared);
    const SequenceTile own = sequence_tile<TILE>(p.sequences, p.count, 1, blockIdx.x);
    if (own.length == 0) return;
    const uint32_t head = blockIdx.y;
    const uint32_t kv_head = head / (p.heads / p.kv_heads);
    const uint32_t columns = p.heads + 2 * p.kv_heads;
    const auto [row, lane, first, position] = thread_row(own.tile);
    const KEY_X* qkv = (const KEY_X*)p.qkv;
    const Head keys = head_of(own, columns, p.heads + kv_head);
    const Head values = head_of(own, columns, p.heads + p.kv_heads + kv_head);

    load_tile(tiles.q, qkv, head_of(own, columns, head), first, own.length);
    float row_max = NEGATIVE_INFINITY, row_sum = 0.0f;
    float o[OWN_D] = {};
    attend(o, row_max, row_sum, tiles, {qkv, qkv, keys, values, own.length}, row, lane, position, first, p.scale);
    if (position >= own.length) return;
    store_row((KEY_X*)p.o, head_of(own, p.heads, head), position, lane, o, reciprocal(row_sum));
    if (lane == 0)
        ((float*)p.lse)[uint64_t(head) * p.tokens + own.first + position] = row_max + logf(row_sum);
}
