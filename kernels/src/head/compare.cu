// Compares the predictions of two models, for a certificate: the divergence of the two rows of a token, agreement of
// their most likely tokens, and the likelihood of the target under each. One CTA per token, which reads its two rows
// twice: for the largest logits and where they are, then for the sums.
// Bound: memory. Reads both logits, in 16-byte vectors where rows are aligned; the second time from L2.
// Source: none; sums as in nll.cu.
#include "head.h"
#include "vector.cuh"

// The largest logit of a row, and the first token that has it.
struct Choice {
    float logit = LOWEST;
    uint32_t token = 0;
    __device__ __forceinline__ void see(float other, uint32_t at) {
        if (other > logit) {
            logit = other;
            token = at;
        }
    }
};

// Reduces over the CTA. Token ids are small enough to be exact in f32.
__device__ __forceinline__ Choice block_choice(Choice own, float* scratch) {
    Choice result;
    result.logit = block_max<VARIANT_THREADS>(own.logit, scratch);
    sync_block(); // scratch is reused
    result.token = uint32_t(-block_max<VARIANT_THREADS>(own.logit == result.logit ? -float(own.token) : LOWEST, scratch));
    sync_block();
    return result;
}

__device__ __forceinline__ float row_sum(float value, float* scratch) {
    const float sum = block_sum<VARIANT_THREADS>(value, scratch);
    sync_block(); // scratch is reused
    return sum;
}

template <uint32_t width> __device__ __forceinline__ void compare(const head_compare_params& p) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint32_t token = blockIdx.x;
    const KEY_X* reference = (const KEY_X*)p.reference + uint64_t(token) * p.vocab;
    const KEY_X* logits = (const KEY_X*)p.logits + uint64_t(token) * p.vocab;
    const uint32_t target = ((const uint32_t*)p.targets)[token];
    if (target == MASKED_TOKEN) {
        if (threadIdx.x > 0) return;
        ((float*)p.kl)[token] = 0.0f;
        ((float*)p.agrees)[token] = 0.0f;
        ((float*)p.reference_nll)[token] = 0.0f;
        ((float*)p.nll)[token] = 0.0f;
        return;
    }
    Choice r_own, s_own;
    for (uint32_t i = threadIdx.x; i < p.vocab / width; i += VARIANT_THREADS) {
        const vector<KEY_X, width> r = load_vector<width>(reference, i), s = load_vector<width>(logits, i);
#pragma unroll
        for (uint32_t j = 0; j < width; j++) {
            r_own.see(r[j], i * width + j);
            s_own.see(s[j], i * width + j);
        }
    }
    const Choice r_first = block_choice(r_own, scratch), s_first = block_choice(s_own, scratch);
    float r_sum = 0.0f, s_sum = 0.0f, difference = 0.0f;
    const float r_shift = r_first.logit * LOG2_E, s_shift = s_first.logit * LOG2_E;
    for (uint32_t i = threadIdx.x; i < p.vocab / width; i += VARIANT_THREADS) {
        const vector<KEY_X, width> r = load_vector<width>(reference, i), s = load_vector<width>(logits, i);
#pragma unroll
        for (uint32_t j = 0; j < width; j++) {
            const float weight = exp2_ftz(fma_rn(r[j], LOG2_E, -r_shift));
            r_sum += weight;
            s_sum += exp2_ftz(fma_rn(s[j], LOG2_E, -s_shift));
            difference = fma_rn(weight, r[j] - s[j], difference);
        }
    }
    r_sum = row_sum(r_sum, scratch);
    s_sum = row_sum(s_sum, scratch);
    difference = row_sum(difference, scratch);
    if (threadIdx.x > 0) return;
    // Equal rows have equal sums: their divergence is exactly 0.
    const float r_log = LN_2 * log2f(r_sum), s_log = LN_2 * log2f(s_sum);
    const float kl = difference / r_sum - ((r_first.logit - s_first.logit) + (r_log - s_log));
    ((float*)p.kl)[token] = kl < 0.0f ? 0.0f : kl;
    ((float*)p.agrees)[token] = r_first.token == s_first.token ? 1.0f : 0.0f;
    ((float*)p.reference_nll)[token] = r_log - (to_float(reference[target]) - r_first.logit);
    ((float*)p.nll)[token] = s_log - (to_float(logits[target]) - s_first.logit);
}

KERNEL(head_compare_params) {
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        compare<WIDTH_OF(KEY_X)>(p);
    else
        compare<1>(p);
}
