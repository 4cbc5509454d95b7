// Negative log likelihood of each target, for evaluation.
// One block a token: online maximum and sum of exponentials in one walk over the row.
// Memory bound: it reads the logits once and writes one float a token.
#include "head/statistics.cuh"

KERNEL(head_nll_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint32_t token = blockIdx.x;
    const KEY_X* row = (const KEY_X*)p.logits + uint64_t(token) * p.vocab;
    const uint32_t target = ((const uint32_t*)p.targets)[token];
    float largest = NEGATIVE_INFINITY, sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < p.vocab; i += VARIANT_THREADS) {
        const float value = to_float(row[i]);
        if (value > largest) {
            sum *= expf(largest - value);
            largest = value;
        }
        sum += expf(value - largest);
    }
    const float row_largest = block_max(largest, scratch);
    const float row_sum = total(sum * expf(largest - row_largest), scratch);
    if (threadIdx.x == 0)
        ((float*)p.nll)[token] =
            target == MASKED_TOKEN ? 0.0f : logf(row_sum) - (to_float(row[target]) - row_largest);
}
