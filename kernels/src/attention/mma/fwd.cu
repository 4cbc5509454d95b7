// Causal grouped-query attention forward on tensor cores, as FlashAttention-2: a CTA owns a tile of queries of one
// head, each warp its own rows, and loops over tiles of keys and values (mainloop.cuh). Tiles with most keys start
// first.
// Bound: tensor cores, and next to them the exponentials.
// Source: Dao, "FlashAttention-2", 2023.
#include "attention/mma/tile.cuh"

#define QUERY(row) own + row
#define SEQ_LEN sequence.length
enum : uint32_t {
    QUERIES = VARIANT_QUERIES,
    KEYS = VARIANT_KEYS,                       // per tile
    ROWS = QUERIES / (VARIANT_THREADS / WARP), // per warp
    M = ROWS / 16,
    N = KEYS / 8,
    TILE_BYTES = KEYS * PITCH,
    Q_IN_REGISTERS = KEY_D <= 64,
};

KERNEL(attention_fwd_params) {
    DYNAMIC_SHARED(unsigned char, memory);
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const SequenceTile sequence = sequence_tile<QUERIES>(p.sequences, p.count, 1, blockIdx.x / p.heads);
    if (sequence.length == 0) return;
    const uint32_t head = blockIdx.x % p.heads;
    const uint32_t kv_head = head / (p.heads / p.kv_heads), columns = p.heads + 2 * p.kv_heads;
    const uint32_t first = sequence.tile * QUERIES, own = first + warp * ROWS;
    const Head keys = head_of(p.qkv, sequence, columns, p.heads + kv_head);
    const Head values = head_of(p.qkv, sequence, columns, p.heads + p.kv_heads + kv_head);
    const uint32_t q = shared_address(memory), stages = q + QUERIES * PITCH; // two stages of k and v
    const uint32_t own_q = q + warp * ROWS * PITCH;
    const uint32_t begin = first_key(first) / KEYS * KEYS; // of the visible keys' tiles
    const uint32_t end = first + QUERIES < sequence.length ? first + QUERIES : sequence.length; // of the visible keys
    const float scale_log2 = p.scale * LOG2_E;

    copy_rows<QUERIES>(q, head_of(p.qkv, sequence, columns, head), first, sequence.length);
    copy_rows<KEYS>(stages, keys, begin, sequence.length);
    copy_rows<KEYS>(stages + TILE_BYTES, values, begin, sequence.length);
    cp_async_commit();

#include "attention/mma/mainloop.cuh"

    float* lse = (float*)p.lse + uint64_t(head) * p.tokens + sequence.first;
#pragma unroll
    for (uint32_t i = 0; i < M; i++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t query = own + i * 16 + lane / 4 + half * 8;
            softmax[i].finish(o[i], half);
            if (lane % 4 == 0 && query < sequence.length) lse[query] = softmax[i].log_sum_exp(half, p.scale);
        }
    store_rows(head_of(p.o, sequence, p.heads, head), own, sequence.length, own_q, o);
}
