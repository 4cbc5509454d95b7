// The mainloop of the forward kernels on CUDA cores: rows of queries attend to tiles of keys and values with an online
// softmax; the running maximum and sum stay in registers. Probabilities are rounded before p v, as tensor cores need
// them.
#pragma once
#include "attention/simt/tile.cuh"

// Tiles in shared memory.
struct Tiles {
    float *q, *k, *v, *score;
    __device__ __forceinline__ Tiles(float* shared)
        : q(shared), k(q + TILE * PITCH), v(k + TILE * PITCH), score(v + TILE * PITCH) {}
};

// Keys and values of a head; there are `seq_len` of them.
struct KeysAndValues {
    const KEY_X *key_data, *value_data;
    Head keys, values;
    uint32_t seq_len;
};

// Sums into `o` this thread's elements of the values that row `row` of q attends to from `position`, not yet divided by
// `row_sum`. `last` is a key of the last tile that the CTA sees, and not behind its queries.
__device__ __forceinline__ void attend(float (&o)[OWN_D], float& row_max, float& row_sum, const Tiles& tiles,
                                       const KeysAndValues& source, uint32_t row, uint32_t lane, uint32_t position,
                                       uint32_t last, float scale) {
    for (uint32_t k0 = first_key(last) / TILE * TILE; k0 <= last; k0 += TILE) {
        sync_block(); // the previous tiles have been read
        load_tile(tiles.k, source.key_data, source.keys, k0, source.seq_len);
        load_tile(tiles.v, source.value_data, source.values, k0, source.seq_len);
        sync_block();
        float s[OWN_SCORES];
        dots(tiles.q, tiles.k, row, lane, s);
        float tile_max = NEGATIVE_INFINITY;
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) {
            const uint32_t key = k0 + lane + j * ROW_THREADS;
            s[j] = key <= position && key >= first_key(position) ? s[j] * scale : NEGATIVE_INFINITY;
            tile_max = fmaxf(tile_max, s[j]);
        }
        // The last tile contains the diagonal, earlier ones are fully visible without a window: never all -inf.
        const float new_max = fmaxf(row_max, group_max<ROW_THREADS>(tile_max));
#ifdef KEY_WINDOW
        const float shift = new_max == NEGATIVE_INFINITY ? 0.0f : new_max; // nothing seen so far stays nothing
#else
        const float shift = new_max;
#endif
        const float rescale = expf(row_max - shift);
        float tile_sum = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < OWN_SCORES; j++) {
            const float probability = expf(s[j] - shift);
            tile_sum += probability;
            tiles.score[row * SCORE_PITCH + lane + j * ROW_THREADS] = round_to<KEY_X>(probability);
        }
        row_sum = row_sum * rescale + group_sum<ROW_THREADS>(tile_sum);
        row_max = new_max;
#pragma unroll
        for (uint32_t i = 0; i < OWN_D; i++) o[i] *= rescale;
        sync_warp(); // a row's scores are written and read by the same warp
        add_weighted(o, tiles.score, tiles.v, row, lane);
    }
}
