// Gradient of the convolution's channels, see gradient.cuh, and partial sums of the weights'. A thread owns a vector of
// channels and slides over the `rows` tokens of one partial, whose sums stay in its registers: no reduction follows.
// Bound: memory, in 16-byte vectors where the row length allows it. Reads x and dy once, writes dx once.
// Source: the gradient of fwd.cu; `causal_conv1d` of Gu and Dao, "Mamba", 2023.
#include "conv/gradient.cuh"

template <uint32_t width> __device__ __forceinline__ void backward(const conv_bwd_params& p) {
    const Place at = place_of<width>(p.channels);
    if (at.column >= p.channels / width) return;
    const uint32_t first = at.run * p.rows;
    TapSums<width> sums;
    gradient<true>(p, at.column, first, min(first + p.rows, p.tokens), sums);
    float* partial = (float*)p.dweight_partial + (uint64_t(at.run) * p.channels + at.column * width) * TAPS;
#pragma unroll
    for (uint32_t j = 0; j < width; j++) store_vector(partial, j, sums.of[j]);
}

KERNEL(conv_bwd_params) {
    if (p.channels % WIDTH_OF(KEY_X) == 0 && p.row_columns % WIDTH_OF(KEY_X) == 0)
        backward<WIDTH_OF(KEY_X)>(p);
    else
        backward<1>(p);
}
