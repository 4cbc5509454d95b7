// Attention of decoded rows on CUDA cores: the queries of a CTA are the query heads of a row that share a key/value
// head, all at the row's position.
// Bound: shared memory, which feeds every multiply-add of the two GEMMs.
// Source: Dao, "FlashAttention-2", 2023; the mainloop of fwd.cu, for its bits.
#include "attention/decode.cuh"
#include "attention/simt/mainloop.cuh"

KERNEL(attention_decode_params) {
    DYNAMIC_SHARED(float, shared);
    const Tiles tiles(shared);
    const DecodeRow own = decode_row(p);
    const uint32_t row = threadIdx.x / ROW_THREADS, lane = threadIdx.x % ROW_THREADS;
    const uint32_t first = blockIdx.z * TILE, head = first + row; // heads of the group

    float o[OWN_D] = {}, inverse = 0.0f;
    if (own.slot != IDLE_SLOT) {
        const Head pool = {own.pool, KEY_D};
        load_tile(tiles.q, (const KEY_X*)p.qkv, {own.queries, KEY_D}, first, own.group);
        float row_max = NEGATIVE_INFINITY, row_sum = 0.0f;
        const KeysAndValues source = {(const KEY_X*)p.keys, (const KEY_X*)p.values, pool, pool, own.position + 1};
        attend(o, row_max, row_sum, tiles, source, row, lane, own.position, own.position, p.scale);
        inverse = reciprocal(row_sum);
    }
    if (head < own.group) store_row((KEY_X*)p.o, {own.o, KEY_D}, head, lane, o, inverse);
}
