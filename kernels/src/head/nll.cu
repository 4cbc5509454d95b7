// Negative log likelihood of each target, for evaluation: log-sum-exp of the row minus the target's logit.
// One CTA per token. Each thread keeps an online softmax of its share of the row, so the row is read once; exponentials
// are powers of two of logits scaled by log2(e).
// Bound: memory. Reads the logits once, in 16-byte vectors where rows are aligned, and writes one float per token.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#include "head.h"
#include "vector.cuh"

template <uint32_t width> __device__ __forceinline__ void nll(const head_nll_params& p) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint32_t token = blockIdx.x;
    const KEY_X* row = (const KEY_X*)p.logits + uint64_t(token) * p.vocab;
    const uint32_t target = ((const uint32_t*)p.targets)[token];
    float shift = LOWEST, sum = 0.0f;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < p.vocab / width; i += VARIANT_THREADS) {
        const vector<KEY_X, width> values = load_vector<width>(row, i);
        const float larger = largest(values) * LOG2_E;
        if (larger > shift) {
            sum *= exp2_ftz(shift - larger);
            shift = larger;
        }
#pragma unroll
        for (uint32_t j = 0; j < width; j++) sum += exp2_ftz(fma_rn(values[j], LOG2_E, -shift));
    }
    const float row_shift = block_max<VARIANT_THREADS>(shift, scratch);
    sync_block(); // scratch is reused
    const float row_sum = block_sum<VARIANT_THREADS>(sum * exp2_ftz(shift - row_shift), scratch);
    if (threadIdx.x > 0) return;
    // A masked target has no logit.
    ((float*)p.nll)[token] =
        target == MASKED_TOKEN
            ? 0.0f
            : LN_2 * (log2f(row_sum) - fma_rn(to_float(row[target]), LOG2_E, -row_shift));
}

KERNEL(head_nll_params) {
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        nll<WIDTH_OF(KEY_X)>(p);
    else
        nll<1>(p);
}
