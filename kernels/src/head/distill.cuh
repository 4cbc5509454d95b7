// Losses of a student with a teacher and the gradient of its logits, in place, for all divergences. Passes over both
// rows of a token: the first keeps an online softmax at temperature T and at 1 and the cross term of a KL, the last
// writes the gradient; between them the mixture's divergences follow from both softmaxes. A cluster of CTAs shares a
// row and keeps it in shared memory between the passes, copying the next token's row during the last; without a cluster
// a CTA reads the row in each. Rows of equal bits give a divergence and a gradient of it of exactly 0. FORM, a macro of
// the including source, says which divergence: KL(p || q), KL(q || p), or of both from their mixture, p of the teacher
// and q of the student.
#pragma once
#include "head.h"
#include "head/reduce.cuh"
#include "vector.cuh"

enum : uint32_t { FORWARD, REVERSE, JSD };

// Sums over a part of the row of 2^(logit * scale - shift), at temperature T unless the name says otherwise. A shift is
// close to the part's largest logit * scale; an empty part has the lowest. `difference`: the cross term of a KL.
struct alignas(8) RowSums {
    float s_shift = LOWEST, t_shift = LOWEST, s_one = 0.0f, s_soft = 0.0f, t_soft = 0.0f, difference = 0.0f;
};

// Returns 2^exponent at temperature 1, from that at T, `soft`: ONE is 1 if T is 1, 2 if T is 2, else 0.
template <uint32_t ONE> __device__ __forceinline__ float at_one(float soft, float exponent, float temperature) {
    if constexpr (ONE == 1) return soft;
    if constexpr (ONE == 2) return soft * soft;
    return exp2_ftz(exponent * temperature);
}

// Shifts the sums.
template <uint32_t ONE>
__device__ __forceinline__ void rescale(RowSums& sums, float s_shift, float t_shift, float temperature) {
    const float s_factor = exp2_ftz(sums.s_shift - s_shift), t_factor = exp2_ftz(sums.t_shift - t_shift);
    sums.s_one *= at_one<ONE>(s_factor, sums.s_shift - s_shift, temperature);
    sums.s_soft *= s_factor;
    sums.t_soft *= t_factor;
    sums.difference *= FORM == FORWARD ? t_factor : s_factor;
    sums.s_shift = s_shift, sums.t_shift = t_shift;
}

// Adds a vector of each row. Shifts move only when a logit exceeds them so far that sums could overflow: rarely.
template <uint32_t ONE, uint32_t width>
__device__ __forceinline__ void accumulate(RowSums& sums, const vector<KEY_X, width>& s, const vector<KEY_X, width>& t,
                                           float scale, float temperature, float threshold) {
    const float s_shift = largest(s) * scale, t_shift = largest(t) * scale;
    if (s_shift > sums.s_shift + threshold || t_shift > sums.t_shift + threshold)
        rescale<ONE>(sums, fmaxf(s_shift, sums.s_shift), fmaxf(t_shift, sums.t_shift), temperature);
#pragma unroll
    for (uint32_t j = 0; j < width; j++) {
        const float exponent = fma_rn(s[j], scale, -sums.s_shift);
        const float soft = exp2_ftz(exponent), weight = exp2_ftz(fma_rn(t[j], scale, -sums.t_shift));
        sums.s_one += at_one<ONE>(soft, exponent, temperature);
        sums.s_soft += soft;
        sums.t_soft += weight;
        if constexpr (FORM == FORWARD) sums.difference += weight * (t[j] - s[j]);
        if constexpr (FORM == REVERSE) sums.difference += soft * (s[j] - t[j]);
    }
}

// Reduces the sums of a group of `width` lanes; each lane gets the result.
template <uint32_t ONE, uint32_t width> __device__ __forceinline__ RowSums reduce_lanes(RowSums sums, float temperature) {
    rescale<ONE>(sums, group_max<width>(sums.s_shift), group_max<width>(sums.t_shift), temperature);
    sums.s_one = group_sum<width>(sums.s_one), sums.s_soft = group_sum<width>(sums.s_soft);
    sums.t_soft = group_sum<width>(sums.t_soft), sums.difference = group_sum<width>(sums.difference);
    return sums;
}

// Reduces the sums of a row.
template <uint32_t ONE> struct OverRow {
    template <uint32_t width> static __device__ __forceinline__ RowSums lanes(RowSums sums, float temperature) {
        return reduce_lanes<ONE, width>(sums, temperature);
    }
    static __device__ __forceinline__ void send(uint32_t remote, uint32_t cta, uint32_t full, const RowSums& sums) {
        st_async(remote, cta, full, sums.s_shift, sums.t_shift);
        st_async(remote + 8, cta, full, sums.s_one, sums.s_soft);
        st_async(remote + 16, cta, full, sums.t_soft, sums.difference);
    }
};

// Probabilities p of the teacher and q of the student beside their mixture m = beta p + (1 - beta) q.
struct Mixed {
    float student;    // q over the larger of p and q
    float of_student; // log2(q / m)
    float divergence; // beta p log2(p / m) + (1 - beta) q log2(q / m), over the larger
};

// Computes from log2(p / q), by the smaller over the larger: nothing overflows, and equal ones give exactly 0.
__device__ __forceinline__ Mixed mix(float log_ratio, float beta) {
    const bool student_is_smaller = log_ratio > 0.0f;
    const float gap = fabsf(log_ratio), smaller = exp2_ftz(-gap), of_smaller = student_is_smaller ? 1.0f - beta : beta;
    const float share = fma_rn(of_smaller, smaller - 1.0f, 1.0f), log_share = log2_ftz(share); // m over the larger
    return {student_is_smaller ? smaller : 1.0f, -log_share - fmaxf(log_ratio, 0.0f),
            -(of_smaller * smaller * gap + share * log_share)};
}

// Sums over a part of the row: the divergence, and q log2(q / m).
struct alignas(8) MixedSums {
    float divergence = 0.0f, of_student = 0.0f;
};

struct OverMixed {
    template <uint32_t width> static __device__ __forceinline__ MixedSums lanes(MixedSums sums, float) {
        sums.divergence = group_sum<width>(sums.divergence), sums.of_student = group_sum<width>(sums.of_student);
        return sums;
    }
    static __device__ __forceinline__ void send(uint32_t remote, uint32_t cta, uint32_t full, const MixedSums& sums) {
        st_async(remote, cta, full, sums.divergence, sums.of_student);
    }
};

// Static shared memory: a reduction, and one more for the mixture.
template <uint32_t form> struct StorageOf : ReductionStorage<RowSums> {};
template <> struct StorageOf<JSD> : ReductionStorage<RowSums> {
    ReductionStorage<MixedSums> mixed;
};

// Returns the teacher's share of the mixture.
__device__ __forceinline__ float beta_of(const head_distill_params&) { return 0.0f; }
__device__ __forceinline__ float beta_of(const head_jsd_params& p) { return p.beta; }

template <uint32_t ONE, uint32_t width, typename Params, typename Storage>
__device__ __forceinline__ void distill(const Params& p, Storage& storage) {
    typedef vector<KEY_X, width> Vector;
    constexpr bool row_in_shared = VARIANT_CLUSTER > 1 && width > 1;
    const float temperature = p.temperature, inverse = reciprocal(temperature), scale = LOG2_E * inverse;
    const float threshold = 16.0f * fminf(1.0f, inverse);
    const float loss_scale = ((const micro_scalars*)p.micro)->loss_scale;
    const float kd_scale = loss_scale * p.alpha * temperature, ce_scale = loss_scale * (1.0f - p.alpha);

    // This CTA's share of every row, in vectors. A thread takes every VARIANT_THREADS-th of them.
    const uint32_t rank = blockIdx.x % VARIANT_CLUSTER, clusters = gridDim.x / VARIANT_CLUSTER;
    const uint32_t vectors = p.vocab / width, share = (vectors + VARIANT_CLUSTER - 1) / VARIANT_CLUSTER;
    const uint32_t first = min(rank * share, vectors), count = min(share, vectors - first);
    uint32_t token = blockIdx.x / VARIANT_CLUSTER, iteration = 0;
    const uint64_t start = uint64_t(token) * vectors + first, step = uint64_t(clusters) * vectors;
    Vector* s = (Vector*)p.student + start;
    const Vector* t = (const Vector*)p.teacher + start;

    if (VARIANT_CLUSTER > 1) {
        if (threadIdx.x == 0) {
            init(storage);
            if constexpr (FORM == JSD) init(storage.mixed);
            fence_mbarrier_init();
        }
        cluster_sync(); // all CTAs run and their shared memory exists
    }

    // A thread reads only its own copies, so waiting for these suffices: no barrier.
    DYNAMIC_SHARED(Vector, rows);
    auto copy = [&](uint32_t i, uint64_t ahead) {
        cp_async(shared_address(rows + i), s + ahead + i);
        cp_async(shared_address(rows + share + i), t + ahead + i);
        cp_async_commit();
    };
    if constexpr (row_in_shared)
        if (token < p.tokens)
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) copy(i, 0);

    for (; token < p.tokens; token += clusters, s += step, t += step) { // equal tokens for the whole cluster
        const Vector *s_row = row_in_shared ? rows : s, *t_row = row_in_shared ? rows + share : t;
        const bool more = token + clusters < p.tokens;
        const uint32_t target = ((const uint32_t*)p.targets)[token];
        const uint64_t target_at = uint64_t(token) * p.vocab + target; // place of the target's logit
        const uint32_t target_vector = target / width - first; // wraps around if another CTA has it
        const bool has_target = target_vector < count && target_vector % VARIANT_THREADS == threadIdx.x;
        const bool reports = rank == 0 && threadIdx.x == VARIANT_THREADS - 1;
        if (target == MASKED_TOKEN) {
            if constexpr (row_in_shared) cp_async_wait<0>();
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
                if (row_in_shared && more) copy(i, step);
                s[i] = {};
            }
            if (reports) ((float*)p.kd)[token] = ((float*)p.ce)[token] = 0.0f;
            continue;
        }
        // In flight during the first pass. No other thread replaces it.
        const float target_logit = has_target ? to_float(((const KEY_X*)p.student)[target_at]) : 0.0f;
        RowSums sums = {LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 4
        for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
            if constexpr (row_in_shared) { // later copies may be in flight
                if (i + 2 * VARIANT_THREADS < count)
                    cp_async_wait<2>();
                else if (i + VARIANT_THREADS < count)
                    cp_async_wait<1>();
                else
                    cp_async_wait<0>();
            }
            accumulate<ONE, width>(sums, s_row[i], t_row[i], scale, temperature, threshold);
        }
        sums = reduce<OverRow<ONE>>(sums, temperature, storage, iteration++);
        // REVERSE: the mean difference of the logits over T. JSD: KL(q || m) and the divergence, in powers of two.
        float mean = 0.0f, divergence = 0.0f;
        // Excess of the teacher's log-sum-exp, in powers of two.
        float lse_apart = 0.0f;
        if constexpr (FORM != FORWARD)
            lse_apart = (sums.t_shift - sums.s_shift) + (log2f(sums.t_soft) - log2f(sums.s_soft));
        if constexpr (FORM == REVERSE) mean = sums.difference * inverse * reciprocal(sums.s_soft);
        if constexpr (FORM == JSD) {
            const float s_lse = sums.s_shift + log2f(sums.s_soft);
            MixedSums mixed;
#pragma unroll 1
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
                const Vector a = s_row[i], b = t_row[i];
#pragma unroll
                for (uint32_t j = 0; j < width; j++) {
                    const float log_ratio = fma_rn(b[j] - a[j], scale, -lse_apart);
                    const Mixed pair = mix(log_ratio, beta_of(p));
                    const float larger = exp2_ftz(fma_rn(a[j], scale, -s_lse) + fmaxf(log_ratio, 0.0f));
                    mixed.divergence += larger * pair.divergence;
                    mixed.of_student += larger * pair.student * pair.of_student;
                }
            }
            mixed = reduce<OverMixed>(mixed, 0.0f, storage.mixed, iteration - 1);
            divergence = mixed.divergence, mean = mixed.of_student;
        }

        const float of_form = FORM == JSD ? kd_scale * (1.0f - beta_of(p)) * LN_2 : kd_scale;
        const float s_factor = of_form * reciprocal(sums.s_soft), t_factor = kd_scale * reciprocal(sums.t_soft);
        const float one_factor = ce_scale * reciprocal(sums.s_one);
        auto gradient = [&](float a, float b) {
            const float exponent = fma_rn(a, scale, -sums.s_shift);
            const float soft = exp2_ftz(exponent), weight = exp2_ftz(fma_rn(b, scale, -sums.t_shift));
            float of_kd = mul_rn(soft, s_factor) - mul_rn(weight, t_factor);
            if constexpr (FORM == REVERSE) of_kd = soft * s_factor * fma_rn(a - b, inverse, -mean);
            if constexpr (FORM == JSD)
                of_kd = soft * s_factor * (mix(fma_rn(b - a, scale, -lse_apart), beta_of(p)).of_student - mean);
            return of_kd + one_factor * at_one<ONE>(soft, exponent, temperature);
        };
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 2
        for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
            const Vector a = s_row[i], b = t_row[i];
            if (row_in_shared && more) copy(i, step);
            float gradients[width];
#pragma unroll
            for (uint32_t j = 0; j < width; j++) gradients[j] = gradient(a[j], b[j]);
            s[i] = Vector::of(gradients);
        }
        // The target's element again, now with the one-hot term that the store above omitted.
        if (has_target) {
            const float complete = gradient(target_logit, to_float(((const KEY_X*)p.teacher)[target_at])) - ce_scale;
            ((KEY_X*)p.student)[target_at] = from_float<KEY_X>(complete);
            const float exponent = fma_rn(target_logit, scale, -sums.s_shift) * temperature;
            ((float*)p.ce)[token] = LN_2 * (log2f(sums.s_one) - exponent);
        }
        if (reports) {
            float kd = LN_2 * divergence;
            if constexpr (FORM == FORWARD)
                kd = sums.difference * inverse * reciprocal(sums.t_soft) -
                     LN_2 * ((sums.t_shift - sums.s_shift) + (log2f(sums.t_soft) - log2f(sums.s_soft)));
            if constexpr (FORM == REVERSE) kd = mean + LN_2 * lse_apart;
            ((float*)p.kd)[token] = kd < 0.0f ? 0.0f : kd; // not fmaxf, which would hide a NaN
        }
    }
}

template <uint32_t width, typename Params, typename Storage>
__device__ __forceinline__ void distill(const Params& p, Storage& storage) {
    if (p.temperature == 1.0f)
        distill<1, width>(p, storage);
    else if (p.temperature == 2.0f)
        distill<2, width>(p, storage);
    else
        distill<0, width>(p, storage);
}
