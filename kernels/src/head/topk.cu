// Distillation losses from a teacher of whom the probabilities of a few tokens are known, and of all others as one: the
// divergence is over these few tokens and the one. A CTA takes a row. It takes the known tokens' logits out of the row,
// sums the rest as it is (in place of what is taken stands minus infinity), adds the few, and writes the gradient: one
// factor for all of the rest, one for each of the few.
// Bound: memory: the row is read twice, the second time mostly from L2, and written once.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, over the losses of `mod.rs`.
#include "head_topk.h"
#include "vector.cuh"

struct TopkStorage {
    float scratch[8][VARIANT_THREADS / WARP]; // a row of warps for each reduction: none waits for the one before
    float logits[MOST_KEPT];
};

// Sums over a part of the row of 2^(logit * scale - shift) at temperature T, and of its power T, which is at
// temperature 1. A shift is close to the part's largest logit * scale; an empty part has the lowest.
struct RestSums {
    float shift = LOWEST, soft = 0.0f, one = 0.0f;
};

// Returns 2^exponent at temperature 1, from that at T, `soft`: ONE is 1 if T is 1, 2 if T is 2, else 0.
template <uint32_t ONE> __device__ __forceinline__ float to_one(float soft, float exponent, float temperature) {
    if constexpr (ONE == 1) return soft;
    if constexpr (ONE == 2) return soft * soft;
    return exp2_ftz(exponent * temperature);
}

template <uint32_t ONE> __device__ __forceinline__ void rescale(RestSums& sums, float shift, float temperature) {
    const float factor = exp2_ftz(sums.shift - shift);
    sums.one *= to_one<ONE>(factor, sums.shift - shift, temperature);
    sums.soft *= factor;
    sums.shift = shift;
}

// The tokens that are known and all others as one, in powers of two: log2 of the teacher's and of the student's
// probability.
struct Category {
    float teacher, student;
};

// Terms of a category: its divergence, and the student's probability times the derivative of the divergence by its log.
struct Terms {
    float divergence, of_student;
};

__device__ __forceinline__ float log_mixture(Category it, float beta) {
    const float larger = fmaxf(it.teacher, it.student);
    return larger + log2f(beta * exp2_ftz(it.teacher - larger) + (1.0f - beta) * exp2_ftz(it.student - larger));
}
// log2 of the student's probability over that which it diverges from: of the teacher, or of the mixture.
__device__ __forceinline__ float log_ratio(Category it, float beta) {
    return it.student - (beta == 1.0f ? it.teacher : log_mixture(it, beta));
}
__device__ __forceinline__ Terms terms_of(Category it, float beta) {
    const float p = exp2_ftz(it.teacher), q = exp2_ftz(it.student);
    if (beta == 0.0f) return {p * (it.teacher - it.student), 0.0f};
    const float of_student = q * log_ratio(it, beta);
    if (beta == 1.0f) return {of_student, of_student};
    return {beta * p * (it.teacher - log_mixture(it, beta)) + (1.0f - beta) * of_student, of_student};
}

template <uint32_t ONE, uint32_t width>
__device__ __forceinline__ void topk(const head_topk_params& p, TopkStorage& storage) {
    typedef vector<KEY_X, width> Vector;
    const uint32_t token = blockIdx.x, vectors = p.vocab / width;
    const uint32_t target = ((const uint32_t*)p.targets)[token];
    Vector* row = (Vector*)p.student + uint64_t(token) * vectors;
    KEY_X* logits = (KEY_X*)row;
    if (target == MASKED_TOKEN) {
        for (uint32_t i = threadIdx.x; i < vectors; i += VARIANT_THREADS) row[i] = {};
        if (threadIdx.x == 0) ((float*)p.kd)[token] = ((float*)p.ce)[token] = 0.0f;
        return;
    }
    const float temperature = p.temperature, beta = p.beta;
    const float scale = LOG2_E * reciprocal(temperature), threshold = 16.0f * fminf(1.0f, reciprocal(temperature));
    const float loss_scale = ((const micro_scalars*)p.micro)->loss_scale;
    const float kd_scale = loss_scale * p.alpha * temperature, ce_scale = loss_scale * (1.0f - p.alpha);
    const uint32_t* ids = (const uint32_t*)p.ids + uint64_t(token) * p.keep;
    const float* log_probs = (const float*)p.log_probs + uint64_t(token) * (p.keep + 1);

    const float target_logit = to_float(logits[target]);
    sync_block(); // before it may be taken out
    float top = LOWEST;
    for (uint32_t i = threadIdx.x; i < p.keep; i += VARIANT_THREADS) {
        const uint32_t id = ids[i];
        if (id == NO_TOKEN) {
            storage.logits[i] = NEGATIVE_INFINITY;
            continue;
        }
        storage.logits[i] = to_float(logits[id]);
        logits[id] = from_float<KEY_X>(NEGATIVE_INFINITY);
        top = fmaxf(top, storage.logits[i]);
    }
    top = block_max<VARIANT_THREADS>(top, storage.scratch[0]); // also a barrier

    RestSums rest;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < vectors; i += VARIANT_THREADS) {
        const Vector values = row[i];
        const float shift = largest(values) * scale;
        if (shift > rest.shift + threshold) rescale<ONE>(rest, shift, temperature);
#pragma unroll
        for (uint32_t j = 0; j < width; j++) {
            const float exponent = fma_rn(values[j], scale, -rest.shift), soft = exp2_ftz(exponent);
            rest.soft += soft;
            rest.one += to_one<ONE>(soft, exponent, temperature);
        }
    }
    rescale<ONE>(rest, block_max<VARIANT_THREADS>(rest.shift, storage.scratch[1]), temperature);
    rest.soft = block_sum<VARIANT_THREADS>(rest.soft, storage.scratch[2]);
    rest.one = block_sum<VARIANT_THREADS>(rest.one, storage.scratch[3]);

    // Both parts by one shift.
    const float shift = fmaxf(rest.shift, top * scale), apart = rest.shift - shift;
    float soft = 0.0f, one = 0.0f;
    for (uint32_t i = threadIdx.x; i < p.keep; i += VARIANT_THREADS) {
        const float exponent = fma_rn(storage.logits[i], scale, -shift);
        soft += exp2_ftz(exponent), one += exp2_ftz(exponent * temperature);
    }
    soft = block_sum<VARIANT_THREADS>(soft, storage.scratch[4]) + rest.soft * exp2_ftz(apart);
    one = block_sum<VARIANT_THREADS>(one, storage.scratch[5]) + rest.one * exp2_ftz(apart * temperature);
    const float log_total = log2f(soft);
    const auto known = [&](uint32_t i) {
        return Category{log_probs[i] * LOG2_E, fma_rn(storage.logits[i], scale, -shift) - log_total};
    };
    const Category others = {log_probs[p.keep] * LOG2_E, apart + log2f(rest.soft) - log_total};
    Terms sums = threadIdx.x == 0 ? terms_of(others, beta) : Terms{};
    for (uint32_t i = threadIdx.x; i < p.keep; i += VARIANT_THREADS) {
        if (ids[i] == NO_TOKEN) continue;
        const Terms terms = terms_of(known(i), beta);
        sums.divergence += terms.divergence, sums.of_student += terms.of_student;
    }
    sums.divergence = block_sum<VARIANT_THREADS>(sums.divergence, storage.scratch[6]);
    sums.of_student = block_sum<VARIANT_THREADS>(sums.of_student, storage.scratch[7]);

    // Of a category in units of the student's probability, but for KL(p || q), where that may vanish.
    const float of_form = kd_scale * LN_2 * (beta == 1.0f ? 1.0f : 1.0f - beta);
    const auto factor = [&](Category it) { return of_form * (log_ratio(it, beta) - sums.of_student); };
    const float share = exp2_ftz(apart - log_total);
    const float rest_soft = beta == 0.0f ? kd_scale * (share - exp2_ftz(others.teacher) / rest.soft) : share * factor(others);
    const float rest_one = ce_scale * exp2_ftz(apart * temperature) / one;
    const auto of_rest = [&](float logit) {
        const float exponent = fma_rn(logit, scale, -rest.shift), soft = exp2_ftz(exponent);
        return soft * rest_soft + rest_one * to_one<ONE>(soft, exponent, temperature);
    };
    const uint32_t target_vector = target / width;
    const bool has_target = target_vector % VARIANT_THREADS == threadIdx.x;
    const bool target_is_known = has_target && to_float(logits[target]) == NEGATIVE_INFINITY;
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < vectors; i += VARIANT_THREADS) {
        const Vector values = row[i];
        float gradients[width];
#pragma unroll
        for (uint32_t j = 0; j < width; j++) gradients[j] = of_rest(values[j]);
        row[i] = Vector::of(gradients);
    }
    if (has_target && !target_is_known) logits[target] = from_float<KEY_X>(of_rest(target_logit) - ce_scale);
    sync_block(); // the known tokens' places have been written to
    for (uint32_t i = threadIdx.x; i < p.keep; i += VARIANT_THREADS) {
        if (ids[i] == NO_TOKEN) continue;
        const Category it = known(i);
        const float q = exp2_ftz(it.student), exponent = fma_rn(storage.logits[i], scale, -shift);
        const float of_kd = beta == 0.0f ? kd_scale * (q - exp2_ftz(it.teacher)) : q * factor(it);
        const float of_ce = ce_scale * exp2_ftz(exponent * temperature) / one - (ids[i] == target ? ce_scale : 0.0f);
        logits[ids[i]] = from_float<KEY_X>(of_kd + of_ce);
    }
    if (threadIdx.x > 0) return;
    const float kd = LN_2 * sums.divergence;
    ((float*)p.kd)[token] = kd < 0.0f ? 0.0f : kd; // not fmaxf, which would hide a NaN
    ((float*)p.ce)[token] = LN_2 * (log2f(one) - fma_rn(target_logit, scale, -shift) * temperature);
}

template <uint32_t width> __device__ __forceinline__ void topk(const head_topk_params& p, TopkStorage& storage) {
    if (p.temperature == 1.0f)
        topk<1, width>(p, storage);
    else if (p.temperature == 2.0f)
        topk<2, width>(p, storage);
    else
        topk<0, width>(p, storage);
}

KERNEL(head_topk_params) {
    __shared__ TopkStorage storage;
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        topk<WIDTH_OF(KEY_X)>(p, storage);
    else
        topk<1>(p, storage);
}
