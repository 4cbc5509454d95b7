// Causal grouped-query attention forward with online softmax: no S x S buffer, one pass over the keys.
// One block owns a tile of queries of one head and walks the key tiles up to its diagonal; the running
// maximum and sum stay in registers. Probabilities are rounded before p v, as tensor cores would need them.
#include "attention/tile.cuh"

KERNEL(attention_fwd_params) {
    DYNAMIC_SHARED(float, shared);
    float* q = shared;
    float* k = q + TILE * PITCH;
    float* v = k + TILE * PITCH;
    float* score = v + TILE * PITCH;
    const uint32_t head = blockIdx.y, batch = blockIdx.z;
    const uint32_t kv_head = head / (p.heads / p.kv_heads);
    const uint32_t columns = p.heads + 2 * p.kv_heads;
    const uint32_t row = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t first = blockIdx.x * TILE, position = first + row;
    const KEY_X* qkv = (const KEY_X*)p.qkv;
    const Head keys = head_of(batch, p.seq_len, columns, p.heads + kv_head);
    const Head values = head_of(batch, p.seq_len, columns, p.heads + p.kv_heads + kv_head);

    load_tile(q, qkv, head_of(batch, p.seq_len, columns, head), first, p.seq_len);
    float largest = NEGATIVE_INFINITY, total = 0.0f;
    float sum[OWN_D] = {};
    for (uint32_t k0 = 0; k0 <= first; k0 += TILE) {
        sync_block(); // the previous tiles have been read
        load_tile(k, qkv, keys, k0, p.seq_len);
        load_tile(v, qkv, values, k0, p.seq_len);
        sync_block();
        float s[OWN_SCORES];
        dots(q, k, row, lane, s);
        float tile_largest = NEGATIVE_INFINITY;
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) {
            s[j] = k0 + lane + j * LANES <= position ? s[j] * p.scale : NEGATIVE_INFINITY;
            tile_largest = fmaxf(tile_largest, s[j]);
        }
        // The diagonal is visible in the last tile and everything is in earlier ones: never all -inf.
        const float now = fmaxf(largest, group_max<LANES>(tile_largest));
        const float shrink = expf(largest - now);
        float tile_total = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) {
            const float probability = expf(s[j] - now);
            tile_total += probability;
            score[row * SCORE_PITCH + lane + j * LANES] = round_to<KEY_X>(probability);
        }
        total = total * shrink + group_sum<LANES>(tile_total);
        largest = now;
#pragma unroll
        for (uint32_t i = 0; i < OWN_D; i++) sum[i] *= shrink;
        sync_warp(); // a row's scores are written and read by the same warp
        add_weighted(sum, score, v, row, lane);
    }
    if (position >= p.seq_len) return;
    store_row((KEY_X*)p.o, head_of(batch, p.seq_len, p.heads, head), position, lane, sum, reciprocal(total));
    if (lane == 0)
        ((float*)p.lse)[(uint64_t(batch) * p.heads + head) * p.seq_len + position] = largest + logf(total);
}
