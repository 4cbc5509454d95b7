// Gradient of a run of tokens. A thread slides over the run and the BEFORE tokens behind it, which read the run's last:
// at each it recomputes the convolution and adds to the gradients of the tokens that this reads; one that no later
// token reads is complete.
#pragma once
#include "conv/run.cuh"

// Gradients of the weights, in the order of memory; zeros where nothing is asked for them.
template <uint32_t width> struct TapSums {
    float of[width][TAPS] = {};
};

template <bool weights, uint32_t width, typename Params>
__device__ __forceinline__ void gradient(const Params& p, uint32_t column, uint32_t first, uint32_t end,
                                         TapSums<width>& sums) {
    const KEY_X* dy = (const KEY_X*)p.dy + column * width;
    KEY_X* dx = (KEY_X*)p.dx + column * width;
    const uint32_t last = min(end + BEFORE, p.tokens);
    Taps<width> taps;
    taps.load((const KEY_X*)p.weight, column);
    Window<width> window = {(const KEY_X*)p.x + column * width, p.row_columns};
    window.begin(first);
    float pending[TAPS][width] = {}; // of the tokens so many before
    for (uint32_t start = first; start < end + BEFORE; start += STEP) {
        window.fill(start, last);
        vector<KEY_X, width> dys[STEP];
        uint32_t before[STEP];
#pragma unroll
        for (uint32_t i = 0; i < STEP; i++) {
            dys[i] = {}, before[i] = 0;
            if (start + i < last) {
                dys[i] = load_vector<width>(dy + uint64_t(start + i) * p.channels, 0);
                before[i] = before_of(p.position, start + i);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < STEP; i++) {
            const uint32_t token = start + i;
            float dsum[width];
            window.convolve(taps, i, before[i], dsum);
#pragma unroll
            for (uint32_t j = 0; j < width; j++) {
                const float s = gate_sigmoid(dsum[j]);
                dsum[j] = dys[i][j] * (s * gate_slope(dsum[j], s));
            }
#pragma unroll
            for (uint32_t j = 0; j < width; j++) {
#pragma unroll
                for (uint32_t back = BEFORE; back > 0; back--) pending[back][j] = pending[back - 1][j];
                pending[0][j] = 0.0f;
            }
#pragma unroll
            for (uint32_t back = 0; back < TAPS; back++) {
                if (back > before[i]) break;
#pragma unroll
                for (uint32_t j = 0; j < width; j++) {
                    pending[back][j] += taps(j, back) * dsum[j];
                    if (weights && token < end)
                        sums.of[j][BEFORE - back] += dsum[j] * window.tokens[BEFORE + i - back][j];
                }
            }
            if (token >= first + BEFORE && token < end + BEFORE)
                store_vector(dx + uint64_t(token - BEFORE) * p.row_columns, 0, pending[BEFORE]);
        }
        window.advance();
    }
}
