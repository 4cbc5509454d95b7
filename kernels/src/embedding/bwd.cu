// Embedding scatter-add without atomics: dtable[id] += sum of dy over the tokens with that id. One CTA per sorted token
// and 32 vectors of columns; the one at the head of a run of equal ids owns that part of the table's row, others return
// at once. In a long run its warps add every DEPTH-th row and reduce through shared memory, in a fixed order: a
// frequent token forms no long dependency chain.
// Bound: memory. Reads dy once, reads and writes the rows of dtable that occur.
// Source: sort-and-segment, as in PyTorch's deterministic embedding backward.
#include "embedding.h"
#include "vector.cuh"

enum : uint32_t {
    WIDTH = KEY_H % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1,
    COLUMNS = KEY_H / WIDTH,
    DEPTH = VARIANT_THREADS / WARP,
    SHORT = 8, // most rows that one thread adds by itself
};

// Returns the end of the run of ids equal to ids[first]: they are sorted.
__device__ __forceinline__ uint32_t run_end(const uint32_t* ids, uint32_t first, uint32_t tokens) {
    const uint32_t id = ids[first];
    uint32_t inside = first, outside = tokens;
    // Most runs are short: look one further before halving.
    if (first + 1 < tokens && ids[first + 1] != id) return first + 1;
    while (outside - inside > 1) {
        const uint32_t middle = inside + (outside - inside) / 2;
        if (ids[middle] == id)
            inside = middle;
        else
            outside = middle;
    }
    return outside;
}

KERNEL(embedding_bwd_params) {
    __shared__ float sums[DEPTH][WIDTH][WARP + 4]; // padded: free of bank conflicts by row and by column
    const uint32_t* ids = (const uint32_t*)p.sorted_ids;
    const uint32_t* positions = (const uint32_t*)p.sorted_positions;
    const KEY_X* dy = (const KEY_X*)p.dy;
    const uint32_t first = blockIdx.x;
    const uint32_t id = ids[first];
    if (id == p.padding || (first > 0 && ids[first - 1] == id)) return;
    const uint32_t end = run_end(ids, first, p.tokens);
    float* dtable = (float*)p.dtable + uint64_t(id) * KEY_H;
    if (end - first <= SHORT) { // a thread per vector, no reduction
        if (blockIdx.y > 0) return;
        for (uint32_t column = threadIdx.x; column < COLUMNS; column += VARIANT_THREADS) {
            float sum[WIDTH];
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) sum[i] = dtable[column * WIDTH + i];
            for (uint32_t t = first; t < end; t++) {
                const vector<KEY_X, WIDTH> values = load_vector<WIDTH>(dy + uint64_t(positions[t]) * KEY_H, column);
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++) sum[i] += values[i];
            }
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) dtable[column * WIDTH + i] = sum[i];
        }
        return;
    }
    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (uint32_t start = blockIdx.y * WARP; start < COLUMNS; start += gridDim.y * WARP) {
        float sum[WIDTH] = {};
        if (start + lane < COLUMNS) {
#pragma unroll 8
            for (uint32_t t = first + warp; t < end; t += DEPTH) {
                const vector<KEY_X, WIDTH> values = load_vector<WIDTH>(dy + uint64_t(positions[t]) * KEY_H, start + lane);
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++) sum[i] += values[i];
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) sums[warp][i][lane] = sum[i];
        sync_block();
        for (uint32_t i = threadIdx.x; i < WIDTH * WARP && start * WIDTH + i < KEY_H; i += VARIANT_THREADS) {
            float total = 0.0f;
#pragma unroll
            for (uint32_t w = 0; w < DEPTH; w++) total += sums[w][i % WIDTH][i / WIDTH];
            dtable[start * WIDTH + i] += total;
        }
        sync_block(); // sums is reused
    }
}
