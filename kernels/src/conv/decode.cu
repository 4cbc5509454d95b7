// Causal depthwise convolution of runs of rows, then SiLU, see fwd.cu. The tokens in front of a run are those that its
// slot keeps; a thread takes a vector of channels of a whole run, so that it has read them before it replaces them.
// Bound: memory, in 16-byte vectors where the row length allows it.
// Source: `causal_conv1d` of Gu and Dao, "Mamba", 2023.
#include "conv/run.cuh"
#include "conv_decode.h"
#include "early.cuh"
#include "kv/run.cuh"

template <uint32_t width> __device__ __forceinline__ void decode(const conv_decode_params& p) {
    typedef vector<KEY_X, width> Vector;
    const Place at = place_of<width>(p.channels);
    const Run run = run_of(p.slot, p.position, at.run, p.rows);
    if (at.column >= p.channels / width) return;
    Vector* y = (Vector*)p.y + at.column;
    const uint32_t stride = p.channels / width, end = at.run + run.rows;
    if (run.slot == IDLE_SLOT) y[uint64_t(at.run) * stride] = {};
    if (run.rows == 0) return;

    Vector* history = (Vector*)p.history + uint64_t(run.slot) * BEFORE * stride + at.column;
    Taps<width> taps;
    taps.load((const KEY_X*)p.weight, at.column);
    Window<width> window = {(const KEY_X*)p.x + at.column * width, p.row_columns};
#pragma unroll
    for (uint32_t i = 0; i < BEFORE; i++) window.tokens[i] = history[i * stride];
    const auto write = [&](uint32_t row, uint32_t i) {
        float out[width];
        window.convolve(taps, i, min(uint32_t(BEFORE), run.position + row - at.run), out);
#pragma unroll
        for (uint32_t j = 0; j < width; j++) out[j] *= gate_sigmoid(out[j]);
        y[uint64_t(row) * stride] = Vector::of(out);
    };
    uint32_t row = at.run;
    for (; row + STEP <= end; row += STEP) {
        window.fill(row, end);
#pragma unroll
        for (uint32_t i = 0; i < STEP; i++) write(row + i, i);
        window.advance();
    }
    for (; row < end; row++) {
        window.tokens[BEFORE] = window.load(row);
        write(row, 0);
#pragma unroll
        for (uint32_t i = 0; i < BEFORE; i++) window.tokens[i] = window.tokens[i + 1];
    }
#pragma unroll
    for (uint32_t i = 0; i < BEFORE; i++) history[i * stride] = window.tokens[i];
}

KERNEL(conv_decode_params) {
    begin_early();
    if (p.channels % WIDTH_OF(KEY_X) == 0 && p.row_columns % WIDTH_OF(KEY_X) == 0)
        decode<WIDTH_OF(KEY_X)>(p);
    else
        decode<1>(p);
}
