// Causal grouped-query attention forward with online softmax on CUDA cores: no S x S buffer, one pass over the keys.
// A CTA owns a tile of queries of one head and loops over the key tiles up to its diagonal; the running maximum and sum
// stay in registers. Probabilities are rounded before p v, as tensor cores need them.
// Bound: shared memory, which feeds every multiply-add of the two GEMMs.
// Source: Dao, "FlashAttention-2", 2023.
#include "attention/simt/tile.cuh"

KERNEL(attention_fwd_params) {
    DYNAMIC_SHARED(float, shared);
    float* q = shared;
    float* k = q + TILE * PITCH;
    float* v = k + TILE * PITCH;
    float* score = v + TILE * PITCH;
    const uint32_t head = blockIdx.y, batch = blockIdx.z;
    const uint32_t kv_head = head / (p.heads / p.kv_heads);
    const uint32_t columns = p.heads + 2 * p.kv_heads;
    const auto [row, lane, first, position] = thread_row();
    const KEY_X* qkv = (const KEY_X*)p.qkv;
    const Head keys = head_of(batch, p.seq_len, columns, p.heads + kv_head);
    const Head values = head_of(batch, p.seq_len, columns, p.heads + p.kv_heads + kv_head);

    load_tile(q, qkv, head_of(batch, p.seq_len, columns, head), first, p.seq_len);
    float row_max = NEGATIVE_INFINITY, row_sum = 0.0f;
    float o[OWN_D] = {};
    for (uint32_t k0 = 0; k0 <= first; k0 += TILE) {
        sync_block(); // the previous tiles have been read
        load_tile(k, qkv, keys, k0, p.seq_len);
        load_tile(v, qkv, values, k0, p.seq_len);
        sync_block();
        float s[OWN_SCORES];
        dots(q, k, row, lane, s);
        float tile_max = NEGATIVE_INFINITY;
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) {
            s[j] = k0 + lane + j * ROW_THREADS <= position ? s[j] * p.scale : NEGATIVE_INFINITY;
            tile_max = fmaxf(tile_max, s[j]);
        }
        // The last tile contains the diagonal, earlier ones are fully visible: never all -inf.
        const float new_max = fmaxf(row_max, group_max<ROW_THREADS>(tile_max));
        const float rescale = expf(row_max - new_max);
        float tile_sum = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) {
            const float probability = expf(s[j] - new_max);
            tile_sum += probability;
            score[row * SCORE_PITCH + lane + j * ROW_THREADS] = round_to<KEY_X>(probability);
        }
        row_sum = row_sum * rescale + group_sum<ROW_THREADS>(tile_sum);
        row_max = new_max;
#pragma unroll
        for (uint32_t i = 0; i < OWN_D; i++) o[i] *= rescale;
        sync_warp(); // a row's scores are written and read by the same warp
        add_weighted(o, score, v, row, lane);
    }
    if (position >= p.seq_len) return;
    store_row((KEY_X*)p.o, head_of(batch, p.seq_len, p.heads, head), position, lane, o, reciprocal(row_sum));
    if (lane == 0)
        ((float*)p.lse)[(uint64_t(batch) * p.heads + head) * p.seq_len + position] = row_max + logf(row_sum);
}
