// Gradient of the convolution's channels for frozen weights, see gradient.cuh. A thread owns a vector of channels and
// slides over a run of tokens.
// Bound: memory, in 16-byte vectors where the row length allows it. Reads x and dy once, writes dx once.
// Source: the gradient of fwd.cu; `causal_conv1d` of Gu and Dao, "Mamba", 2023.
#include "conv/gradient.cuh"

template <uint32_t width> __device__ __forceinline__ void backward(const conv_dgrad_params& p) {
    const Place at = place_of<width>(p.channels);
    if (at.column >= p.channels / width) return;
    const uint32_t first = at.run * VARIANT_TOKENS;
    TapSums<width> none;
    gradient<false>(p, at.column, first, min(first + VARIANT_TOKENS, p.tokens), none);
}

KERNEL(conv_dgrad_params) {
    if (p.channels % WIDTH_OF(KEY_X) == 0 && p.row_columns % WIDTH_OF(KEY_X) == 0)
        backward<WIDTH_OF(KEY_X)>(p);
    else
        backward<1>(p);
}
