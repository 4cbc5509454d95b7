// Causal depthwise convolution over 4 tokens of a sequence, then SiLU. A thread owns a vector of channels and slides
// over a run of tokens, see run.cuh.
// Bound: memory, in 16-byte vectors where the row length allows it. Reads x once, writes y once.
// Source: `causal_conv1d` of Gu and Dao, "Mamba", 2023.
#include "conv/run.cuh"

template <uint32_t width> __device__ __forceinline__ void forward(const conv_fwd_params& p) {
    const Place at = place_of<width>(p.channels);
    if (at.column >= p.channels / width) return;
    const uint32_t first = at.run * VARIANT_TOKENS, end = min(first + VARIANT_TOKENS, p.tokens);
    KEY_X* y = (KEY_X*)p.y + at.column * width;
    Taps<width> taps;
    taps.load((const KEY_X*)p.weight, at.column);
    Window<width> window = {(const KEY_X*)p.x + at.column * width, p.row_columns};
    window.begin(first);
    for (uint32_t start = first; start < end; start += STEP) {
        window.fill(start, end);
#pragma unroll
        for (uint32_t i = 0; i < STEP; i++) {
            const uint32_t token = start + i;
            if (token >= end) break;
            float out[width];
            window.convolve(taps, i, before_of(p.position, token), out);
#pragma unroll
            for (uint32_t j = 0; j < width; j++) out[j] *= gate_sigmoid(out[j]);
            store_vector(y + uint64_t(token) * p.channels, 0, out);
        }
        window.advance();
    }
}

KERNEL(conv_fwd_params) {
    if (p.channels % WIDTH_OF(KEY_X) == 0 && p.row_columns % WIDTH_OF(KEY_X) == 0)
        forward<WIDTH_OF(KEY_X)>(p);
    else
        forward<1>(p);
}
