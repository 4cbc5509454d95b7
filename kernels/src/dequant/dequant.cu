// Dequantizes weights in a block format of ggml: x = w, each value rounded once. Rows are whole blocks, so a matrix is
// one run of them. A thread takes a vector of 16 bytes of x in each of a few blocks, always at one place, so that the
// index of its scales is computed once; all loads come before the first store.
// Bound: memory. Reads 0.56 (Q4_K) to 1.06 (Q8_0) bytes per element and writes 2 or 4.
// Source: dequantize_row_* of ggml-quants.c; "k-quants", llama.cpp pull request 1684.
#include "blocks.cuh"
#include "dequant.h"

enum : uint32_t {
    WIDTH = WIDTH_OF(KEY_X),
    PARTS = KEY_W::ELEMS / WIDTH,    // vectors per block of weights
    STEP = VARIANT_THREADS / PARTS, // blocks of weights that a CTA takes at a time
};

KERNEL(dequant_params) {
    typedef vector<KEY_X, WIDTH> Vector;
    const uint64_t end = p.n / KEY_W::ELEMS;
    const uint64_t start = uint64_t(blockIdx.x) * (STEP * VARIANT_VECTORS);
    const uint32_t part = threadIdx.x % PARTS;
    const KEY_W* w = (const KEY_W*)p.w + start + threadIdx.x / PARTS;
    Vector* x = (Vector*)p.x + start * PARTS + threadIdx.x;
    if (start + STEP * VARIANT_VECTORS <= end) {
        Vector values[VARIANT_VECTORS];
#pragma unroll
        for (uint32_t i = 0; i < VARIANT_VECTORS; i++) values[i] = dequantized<KEY_X, WIDTH>(w[i * STEP], part);
#pragma unroll
        for (uint32_t i = 0; i < VARIANT_VECTORS; i++) x[i * VARIANT_THREADS] = values[i];
    } else {
        const uint32_t left = uint32_t(end - start);
        for (uint32_t i = threadIdx.x / PARTS; i < left; i += STEP, w += STEP, x += VARIANT_THREADS)
            *x = dequantized<KEY_X, WIDTH>(*w, part);
    }
}
