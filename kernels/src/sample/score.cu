// Scores a token of each row: a CTA takes a row and reads it twice. Sums are of integers, as those of `sample` are.
// Bound: memory, the second time from L2. Source: none needed.
#include "sample_score.h"
#include "sample/polynomial.cuh"
#include "sample/select.cuh"

template <uint32_t width>
__device__ __forceinline__ void score(const sample_score_params& p, uint32_t token, Scratch& scratch) {
    const Row<width> row = {(const KEY_X*)p.logits + uint64_t(blockIdx.x) * p.vocab, p.vocab};
    const uint64_t best = highest_rank(row, scratch);
    float log_prob = 0.0f, lse = 0.0f;
    if (best != NOT_FINITE) {
        const float top = to_float(row.logits[~uint32_t(best)]);
        uint64_t total[1] = {};
        row.each([&](uint32_t, float logit) { total[0] += weight_of(logit - top); });
        block_sums(total, scratch);
        const float log_sum = ln(mul_rn(float(total[0]), 0x1p-44f));
        lse = top + log_sum;
        log_prob = to_float(row.logits[token]) - top - log_sum;
    }
    if (threadIdx.x > 0) return;
    ((float*)p.log_prob)[blockIdx.x] = log_prob;
    ((float*)p.lse)[blockIdx.x] = lse;
}

KERNEL(sample_score_params) {
    __shared__ Scratch scratch;
    const uint32_t token = ((const uint32_t*)p.token)[blockIdx.x];
    if (token == MASKED_TOKEN) {
        if (threadIdx.x == 0) ((float*)p.log_prob)[blockIdx.x] = 0.0f, ((float*)p.lse)[blockIdx.x] = 0.0f;
        return;
    }
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        score<WIDTH_OF(KEY_X)>(p, token, scratch);
    else
        score<1>(p, token, scratch);
}
