// Rounds f32 elements to the values that blocks of ggml hold: quantized and dequantized, each value rounded once to x.
// A thread takes the values that share a scale, 32 or 16 neighbors, in registers; threads of a block of 256 exchange
// their scales by shuffles.
// Bound: arithmetic of the search, then memory: reads 4 bytes an element and writes 2 or 4.
// Source: ggml-common.h for the blocks; the search is that of make_qx_quants and make_qkx2_quants of ggml-quants.c.
#include "fake_quant/scales.cuh"
#include "fake_quant.h"

KERNEL(fake_quant_params) {
    typedef Rounding<KEY_W> Round;
    enum : uint32_t { GROUP = Round::GROUP, WIDTH = WIDTH_OF(KEY_X) };
    const uint64_t first = (uint64_t(blockIdx.x) * VARIANT_THREADS + threadIdx.x) * GROUP;
    const bool is_inside = first < p.n;
    float values[GROUP];
#pragma unroll
    for (uint32_t i = 0; i < GROUP / 4; i++) {
        const vector<float, 4> four =
            is_inside ? load_vector<4>((const float*)p.master + first, i) : vector<float, 4>{};
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) values[4 * i + j] = four[j];
    }
    // All lanes of a warp take part in its shuffles.
    Round::round(values);
    if (!is_inside) return;
#pragma unroll
    for (uint32_t i = 0; i < GROUP / WIDTH; i++) {
        float part[WIDTH];
#pragma unroll
        for (uint32_t j = 0; j < WIDTH; j++) part[j] = values[WIDTH * i + j];
        store_vector((KEY_X*)p.x + first, i, part);
    }
}
