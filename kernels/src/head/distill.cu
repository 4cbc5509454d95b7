// Distillation losses and the gradient of the student's logits, in place, in one launch over a chunk of tokens.
// Two passes over both rows of a token: the first keeps an online softmax at temperature T and at 1 and the KL's cross
// term, the second writes the gradient. A cluster of CTAs shares a row and keeps it in shared memory between the passes,
// copying the next token's row during the second; without a cluster a CTA reads the row twice. Rows of equal bits give a KL
// and a KL gradient of exactly 0.
// Bound: memory. A cluster reads both rows once and writes one; the exponentials, up to three per element and pass, come
// next.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, over Hinton's losses (`mod.rs`).
#include "head.h"
#include "hopper.cuh"
#include "vector.cuh"

// Sums over a part of the row of 2^(logit * scale - shift), at temperature T unless the name says otherwise. A shift is
// close to the part's largest logit * scale; an empty part has the lowest.
struct alignas(8) RowSums {
    float s_shift, t_shift, s_one, s_soft, t_soft, difference;
};

// 2^exponent at temperature 1, from that at T, `soft`: ONE is 1 where T is 1, 2 where T is 2, else 0.
template <uint32_t ONE> __device__ __forceinline__ float at_one(float soft, float exponent, float temperature) {
    if constexpr (ONE == 1) return soft;
    if constexpr (ONE == 2) return soft * soft;
    return exp2_ftz(exponent * temperature);
}

// The same sums with other shifts.
template <uint32_t ONE>
__device__ __forceinline__ void rescale(RowSums& sums, float s_shift, float t_shift, float temperature) {
    const float s_factor = exp2_ftz(sums.s_shift - s_shift), t_factor = exp2_ftz(sums.t_shift - t_shift);
    sums.s_one *= at_one<ONE>(s_factor, sums.s_shift - s_shift, temperature);
    sums.s_soft *= s_factor;
    sums.t_soft *= t_factor;
    sums.difference *= t_factor;
    sums.s_shift = s_shift, sums.t_shift = t_shift;
}

// Adds a vector of each row. Shifts move only when a logit exceeds them by so much that sums could overflow: rarely.
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
        sums.difference += weight * (t[j] - s[j]);
    }
}

// The sums of a group of `width` lanes; each of them gets the result.
template <uint32_t ONE, uint32_t width> __device__ __forceinline__ RowSums reduce_lanes(RowSums sums, float temperature) {
    rescale<ONE>(sums, group_max<width>(sums.s_shift), group_max<width>(sums.t_shift), temperature);
    sums.s_one = group_sum<width>(sums.s_one), sums.s_soft = group_sum<width>(sums.s_soft);
    sums.t_soft = group_sum<width>(sums.t_soft), sums.difference = group_sum<width>(sums.difference);
    return sums;
}

// Shared memory of the reduction over the warps of a CTA and the CTAs of a cluster, double-buffered: nobody overwrites what
// another may still read. An mbarrier counts the bytes that other CTAs send: a barrier of the cluster would wait for all
// earlier stores to global memory.
struct ReductionStorage {
    enum : uint32_t { WARPS = VARIANT_THREADS / WARP, WARP_STAGES = VARIANT_CLUSTER == 1 ? 2 : 1 };
    RowSums of_warps[WARP_STAGES][WARPS]; // one stage suffices in a cluster: its CTAs synchronize after the read
    RowSums of_ctas[2][VARIANT_CLUSTER];
    uint64_t full[2]; // mbarriers: the sums of all CTAs have arrived
};

// Reduces over lanes, then warps, then the CTAs that share the row; all threads get the result. `iteration` counts calls.
template <uint32_t ONE>
__device__ __forceinline__ RowSums reduce(RowSums sums, float temperature, ReductionStorage& storage, uint32_t iteration) {
    const uint32_t lane = threadIdx.x % WARP, stage = iteration % 2;
    RowSums* of_warps = storage.of_warps[iteration % ReductionStorage::WARP_STAGES];
    sums = reduce_lanes<ONE, WARP>(sums, temperature);
    if (lane == 0) of_warps[threadIdx.x / WARP] = sums;
    sync_block();
    if (VARIANT_CLUSTER == 1 || threadIdx.x < WARP) {
        sums = lane < ReductionStorage::WARPS ? of_warps[lane] : RowSums{LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
        sums = reduce_lanes<ONE, WARP>(sums, temperature);
    }
    if (VARIANT_CLUSTER == 1) return sums;
    const uint32_t rank = cluster_cta_rank(), full = shared_address(&storage.full[stage]);
    RowSums* own = &storage.of_ctas[stage][rank];
    if (threadIdx.x == 0) {
        *own = sums;
        mbarrier_arrive_expect_tx(full, (VARIANT_CLUSTER - 1) * sizeof(RowSums));
    }
    if (threadIdx.x < VARIANT_CLUSTER && lane != rank) {
        const uint32_t remote = shared_address(own);
        st_async(remote, lane, full, sums.s_shift, sums.t_shift);
        st_async(remote + 8, lane, full, sums.s_one, sums.s_soft);
        st_async(remote + 16, lane, full, sums.t_soft, sums.difference);
    }
    if (threadIdx.x < WARP) mbarrier_wait(full, iteration / 2 % 2);
    sync_block(); // for other warps too; and `of_warps` has been read
    return reduce_lanes<ONE, VARIANT_CLUSTER>(storage.of_ctas[stage][lane % VARIANT_CLUSTER], temperature);
}

template <uint32_t ONE, uint32_t width>
__device__ __forceinline__ void distill(const head_distill_params& p, ReductionStorage& storage) {
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
            for (uint32_t stage = 0; stage < 2; stage++) mbarrier_init(shared_address(&storage.full[stage]), 1);
            fence_mbarrier_init();
        }
        cluster_sync(); // all CTAs run and their shared memory exists
    }

    // A thread reads back only what it copied itself, so waiting for its own copies is enough: no barrier.
    DYNAMIC_SHARED(Vector, rows);
    auto copy = [&](uint32_t i, uint64_t ahead) {
        cp_async(shared_address(rows + i), s + ahead + i);
        cp_async(shared_address(rows + share + i), t + ahead + i);
        cp_async_commit();
    };
    if constexpr (row_in_shared)
        if (token < p.tokens)
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) copy(i, 0);

    for (; token < p.tokens; token += clusters, s += step, t += step) { // the same tokens for the whole cluster
        const Vector *s_row = row_in_shared ? rows : s, *t_row = row_in_shared ? rows + share : t;
        const bool more = token + clusters < p.tokens;
        const uint32_t target = ((const uint32_t*)p.targets)[token];
        const uint64_t target_at = uint64_t(token) * p.vocab + target; // of the target's logit
        const uint32_t target_vector = target / width - first; // wraps around where another CTA has it
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
        sums = reduce<ONE>(sums, temperature, storage, iteration++);

        const float s_factor = kd_scale * reciprocal(sums.s_soft), t_factor = kd_scale * reciprocal(sums.t_soft);
        const float one_factor = ce_scale * reciprocal(sums.s_one);
        auto gradient = [&](float a, float b) {
            const float exponent = fma_rn(a, scale, -sums.s_shift);
            const float soft = exp2_ftz(exponent), weight = exp2_ftz(fma_rn(b, scale, -sums.t_shift));
            return mul_rn(soft, s_factor) - mul_rn(weight, t_factor) +
                   one_factor * at_one<ONE>(soft, exponent, temperature);
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
        // The target's element again, now with the one-hot term that the store above left out.
        if (has_target) {
            const float complete = gradient(target_logit, to_float(((const KEY_X*)p.teacher)[target_at])) - ce_scale;
            ((KEY_X*)p.student)[target_at] = from_float<KEY_X>(complete);
            const float exponent = fma_rn(target_logit, scale, -sums.s_shift) * temperature;
            ((float*)p.ce)[token] = LN_2 * (log2f(sums.s_one) - exponent);
        }
        if (reports) {
            const float kl = sums.difference * inverse * reciprocal(sums.t_soft) -
                             LN_2 * ((sums.t_shift - sums.s_shift) + (log2f(sums.t_soft) - log2f(sums.s_soft)));
            ((float*)p.kd)[token] = kl < 0.0f ? 0.0f : kl; // not fmaxf, which would hide a NaN
        }
    }
}

template <uint32_t width> __device__ __forceinline__ void distill(const head_distill_params& p, ReductionStorage& storage) {
    if (p.temperature == 1.0f)
        distill<1, width>(p, storage);
    else if (p.temperature == 2.0f)
        distill<2, width>(p, storage);
    else
        distill<0, width>(p, storage);
}

// Clusters need sm_90.
#if VARIANT_CLUSTER == 1
KERNEL(head_distill_params) {
#else
CLUSTER_KERNEL(head_distill_params, VARIANT_CLUSTER) {
#endif
    __shared__ ReductionStorage storage;
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        distill<WIDTH_OF(KEY_X)>(p, storage);
    else
        distill<1>(p, storage);
}
