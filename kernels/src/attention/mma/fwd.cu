// Causal grouped-query attention forward on tensor cores, as FlashAttention-2: a CTA owns a tile of queries of one
// head, each warp its own rows, and loops over tiles of keys and values that are copied one tile ahead. Probabilities
// replace scores in registers, as operand a of the second GEMM. Tiles with most keys start first.
// Bound: tensor cores, and next to them the exponentials.
// Source: Dao, "FlashAttention-2", 2023.
#include "attention/mma/tile.cuh"

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
    const uint32_t head = blockIdx.x, batch = blockIdx.y;
    const uint32_t kv_head = head / (p.heads / p.kv_heads), columns = p.heads + 2 * p.kv_heads;
    const uint32_t first = (gridDim.z - 1 - blockIdx.z) * QUERIES, own = first + warp * ROWS;
    const Head keys = head_of(p.qkv, batch, p.seq_len, columns, p.heads + kv_head);
    const Head values = head_of(p.qkv, batch, p.seq_len, columns, p.heads + p.kv_heads + kv_head);
    const uint32_t q = shared_address(memory), stages = q + QUERIES * PITCH; // two stages of k and v
    const uint32_t own_q = q + warp * ROWS * PITCH;
    const uint32_t end = first + QUERIES < p.seq_len ? first + QUERIES : p.seq_len; // end of the visible keys
    const float scale_log2 = p.scale * LOG2_E;

    copy_rows<QUERIES>(q, head_of(p.qkv, batch, p.seq_len, columns, head), first, p.seq_len);
    copy_rows<KEYS>(stages, keys, 0, p.seq_len);
    copy_rows<KEYS>(stages + TILE_BYTES, values, 0, p.seq_len);
    cp_async_commit();

    float o[M][CHUNKS][4] = {};
    OnlineSoftmax softmax[M];
    uint32_t q_all[Q_IN_REGISTERS ? STEPS : 1][M][4];

    for (uint32_t k0 = 0, stage = 0; k0 < end; k0 += KEYS, stage ^= 1) {
        cp_async_wait<0>();
        sync_block(); // this tile is there, and the other stage has been read
        if (k0 + KEYS < end) {
            const uint32_t next = stages + (stage ^ 1) * 2 * TILE_BYTES;
            copy_rows<KEYS>(next, keys, k0 + KEYS, p.seq_len);
            copy_rows<KEYS>(next + TILE_BYTES, values, k0 + KEYS, p.seq_len);
        }
        cp_async_commit();
        if (Q_IN_REGISTERS && k0 == 0) {
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++)
#pragma unroll
                for (uint32_t i = 0; i < M; i++) load_a(q_all[Q_IN_REGISTERS ? step : 0][i], own_q + i * 16 * PITCH, step);
        }
        if (k0 >= own + ROWS) continue; // nothing visible to this warp
        const uint32_t k = stages + stage * 2 * TILE_BYTES, v = k + TILE_BYTES;

        float s[M][N][4] = {};
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++) {
            if (!Q_IN_REGISTERS) {
#pragma unroll
                for (uint32_t i = 0; i < M; i++) load_a(q_all[0][i], own_q + i * 16 * PITCH, step);
            }
#pragma unroll
            for (uint32_t n = 0; n < N; n += 2) {
                uint32_t b[4];
                load_b(b, k + n * 8 * PITCH, step);
#pragma unroll
                for (uint32_t i = 0; i < M; i++) {
                    const uint32_t(&a)[4] = q_all[Q_IN_REGISTERS ? step : 0][i];
                    mma(s[i][n], a, b[0], b[1]);
                    mma(s[i][n + 1], a, b[2], b[3]);
                }
            }
        }

        if (k0 + KEYS > own + 1) { // the diagonal
#pragma unroll
            for (uint32_t i = 0; i < M; i++)
#pragma unroll
                for (uint32_t n = 0; n < N; n++)
#pragma unroll
                    for (uint32_t e = 0; e < 4; e++) {
                        const uint32_t key = k0 + n * 8 + lane % 4 * 2 + e % 2;
                        const uint32_t query = own + i * 16 + lane / 4 + e / 2 * 8;
                        if (key > query) s[i][n][e] = NEGATIVE_INFINITY;
                    }
        }

#pragma unroll
        for (uint32_t i = 0; i < M; i++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                softmax[i].update(s[i], half, scale_log2);
                const float rescale = softmax[i].rescale[half];
#pragma unroll
                for (uint32_t n = 0; n < CHUNKS; n++) o[i][n][2 * half] *= rescale, o[i][n][2 * half + 1] *= rescale;
            }

#pragma unroll
        for (uint32_t step = 0; step < KEYS / 16; step++) {
            uint32_t a[M][4];
#pragma unroll
            for (uint32_t i = 0; i < M; i++) pack_a(a[i], s[i], step);
#pragma unroll
            for (uint32_t n = 0; n < CHUNKS; n += 2) {
                uint32_t b[4];
                load_b_transposed(b, v + step * 16 * PITCH, n / 2);
#pragma unroll
                for (uint32_t i = 0; i < M; i++) {
                    mma(o[i][n], a[i], b[0], b[1]);
                    mma(o[i][n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }

    float* lse = (float*)p.lse + (uint64_t(batch) * p.heads + head) * p.seq_len;
#pragma unroll
    for (uint32_t i = 0; i < M; i++)
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            const uint32_t query = own + i * 16 + lane / 4 + half * 8;
            softmax[i].finish(o[i], half);
            if (lane % 4 == 0 && query < p.seq_len) lse[query] = softmax[i].log_sum_exp(half, p.scale);
        }
    store_rows(head_of(p.o, batch, p.seq_len, p.heads, head), own, p.seq_len, own_q, o);
}
