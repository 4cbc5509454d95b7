// Distillation losses and the gradient of the student's logits, in place, in one launch over a chunk.
// One block a token: a first walk over both rows keeps online statistics (maximum; sums at temperature T and
// at 1; the KL's cross term), a second writes the gradient. Rows of equal bits give a KL of exactly 0.
#include "head/statistics.cuh"

KERNEL(head_distill_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint32_t token = blockIdx.x;
    const KEY_X* t = (const KEY_X*)p.teacher + uint64_t(token) * p.vocab;
    KEY_X* s = (KEY_X*)p.student + uint64_t(token) * p.vocab;
    const uint32_t target = ((const uint32_t*)p.targets)[token];
    float* kd = (float*)p.kd + token;
    float* ce = (float*)p.ce + token;
    if (target == MASKED_TOKEN) {
        for (uint32_t i = threadIdx.x; i < p.vocab; i += VARIANT_THREADS) s[i] = from_float<KEY_X>(0.0f);
        if (threadIdx.x == 0) *kd = *ce = 0.0f;
        return;
    }
    const float inverse = reciprocal(p.temperature);
    const float target_logit = to_float(s[target]);

    float s_max = NEGATIVE_INFINITY, t_max = NEGATIVE_INFINITY;
    float s_sum = 0.0f, s_soft = 0.0f, t_soft = 0.0f, difference = 0.0f;
    for (uint32_t i = threadIdx.x; i < p.vocab; i += VARIANT_THREADS) {
        const float a = to_float(s[i]), b = to_float(t[i]);
        if (a > s_max) {
            s_sum *= expf(s_max - a);
            s_soft *= expf((s_max - a) * inverse);
            s_max = a;
        }
        if (b > t_max) {
            const float shrink = expf((t_max - b) * inverse);
            t_soft *= shrink;
            difference *= shrink;
            t_max = b;
        }
        s_sum += expf(a - s_max);
        s_soft += expf((a - s_max) * inverse);
        const float weight = expf((b - t_max) * inverse);
        t_soft += weight;
        difference += weight * ((b - a) * inverse);
    }
    const float s_largest = block_max(s_max, scratch), t_largest = block_max(t_max, scratch);
    // A thread without elements has -inf as its maximum and zeros as its sums: 0 * exp(-inf) is 0.
    const float s_shrink = expf((s_max - s_largest) * inverse), t_shrink = expf((t_max - t_largest) * inverse);
    s_sum = total(s_sum * expf(s_max - s_largest), scratch);
    s_soft = total(s_soft * s_shrink, scratch);
    t_soft = total(t_soft * t_shrink, scratch);
    difference = total(difference * t_shrink, scratch);
    if (threadIdx.x == 0) {
        const float s_lse = s_largest * inverse + logf(s_soft), t_lse = t_largest * inverse + logf(t_soft);
        const float kl = difference * reciprocal(t_soft) - (t_lse - s_lse);
        *kd = kl < 0.0f ? 0.0f : kl; // not fmaxf, which would hide a NaN
        *ce = logf(s_sum) - (target_logit - s_largest);
    }

    const float loss_scale = ((const micro_scalars*)p.micro)->loss_scale;
    const float kd_scale = loss_scale * p.alpha * p.temperature, ce_scale = loss_scale * (1.0f - p.alpha);
    const float s_soft_inverse = reciprocal(s_soft), t_soft_inverse = reciprocal(t_soft);
    const float s_inverse = reciprocal(s_sum);
    for (uint32_t i = threadIdx.x; i < p.vocab; i += VARIANT_THREADS) {
        const float a = to_float(s[i]), b = to_float(t[i]);
        const float soft = product(expf((a - s_largest) * inverse), s_soft_inverse) -
                           product(expf((b - t_largest) * inverse), t_soft_inverse);
        float gradient = kd_scale * soft + ce_scale * (expf(a - s_largest) * s_inverse);
        if (i == target) gradient -= ce_scale;
        s[i] = from_float<KEY_X>(gradient);
    }
}
