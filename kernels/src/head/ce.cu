// Cross entropies and the gradient of the logits, in place, in one launch over a chunk of tokens.
// Two passes over the row of a token: an online softmax, then the gradient. A cluster of CTAs shares a row and keeps it
// in shared memory between the passes, copying the next token's row during the second; without a cluster a CTA reads it
// twice.
// Bound: memory. A cluster reads the row once and writes it once; the exponentials, two per element, come next.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.
#include "head.h"
#include "head/reduce.cuh"
#include "vector.cuh"

// The sum over a part of the row of 2^(logit * log2(e) - shift). A shift is close to the part's largest logit *
// log2(e); an empty part has the lowest.
struct alignas(8) SoftmaxSum {
    float shift = LOWEST, sum = 0.0f;
};

// Shifts the sum.
__device__ __forceinline__ void rescale(SoftmaxSum& sums, float shift) {
    sums.sum *= exp2_ftz(sums.shift - shift);
    sums.shift = shift;
}

// Adds a vector. The shift moves only when a logit exceeds it so far that the sum could overflow: rarely.
template <uint32_t width> __device__ __forceinline__ void accumulate(SoftmaxSum& sums, const vector<KEY_X, width>& row) {
    const float shift = largest(row) * LOG2_E;
    if (shift > sums.shift + 16.0f) rescale(sums, shift);
#pragma unroll
    for (uint32_t j = 0; j < width; j++) sums.sum += exp2_ftz(fma_rn(row[j], LOG2_E, -sums.shift));
}

// Reduces the sum of a row.
struct OverRow {
    template <uint32_t width> static __device__ __forceinline__ SoftmaxSum lanes(SoftmaxSum sums, float) {
        rescale(sums, group_max<width>(sums.shift));
        sums.sum = group_sum<width>(sums.sum);
        return sums;
    }
    static __device__ __forceinline__ void send(uint32_t remote, uint32_t cta, uint32_t full, const SoftmaxSum& sums) {
        st_async(remote, cta, full, sums.shift, sums.sum);
    }
};

template <uint32_t width>
__device__ __forceinline__ void cross_entropy(const head_ce_params& p, ReductionStorage<SoftmaxSum>& storage) {
    typedef vector<KEY_X, width> Vector;
    constexpr bool row_in_shared = VARIANT_CLUSTER > 1 && width > 1;
    const float loss_scale = ((const micro_scalars*)p.micro)->loss_scale;

    // This CTA's share of every row, in vectors. A thread takes every VARIANT_THREADS-th of them.
    const uint32_t rank = blockIdx.x % VARIANT_CLUSTER, clusters = gridDim.x / VARIANT_CLUSTER;
    const uint32_t vectors = p.vocab / width, share = (vectors + VARIANT_CLUSTER - 1) / VARIANT_CLUSTER;
    const uint32_t first = min(rank * share, vectors), count = min(share, vectors - first);
    uint32_t token = blockIdx.x / VARIANT_CLUSTER, iteration = 0;
    const uint64_t step = uint64_t(clusters) * vectors;
    Vector* logits = (Vector*)p.logits + uint64_t(token) * vectors + first;

    if (VARIANT_CLUSTER > 1) {
        if (threadIdx.x == 0) {
            init(storage);
            fence_mbarrier_init();
        }
        cluster_sync(); // all CTAs run and their shared memory exists
    }

    // A thread reads only its own copies, so waiting for these suffices: no barrier.
    DYNAMIC_SHARED(Vector, kept);
    auto copy = [&](uint32_t i, uint64_t ahead) {
        cp_async(shared_address(kept + i), logits + ahead + i);
        cp_async_commit();
    };
    if constexpr (row_in_shared)
        if (token < p.tokens)
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) copy(i, 0);

    for (; token < p.tokens; token += clusters, logits += step) { // equal tokens for the whole cluster
        const Vector* row = row_in_shared ? kept : logits;
        const bool more = token + clusters < p.tokens;
        const uint32_t target = ((const uint32_t*)p.targets)[token];
        const uint64_t target_at = uint64_t(token) * p.vocab + target; // place of the target's logit
        const uint32_t target_vector = target / width - first; // wraps around if another CTA has it
        const bool has_target = target_vector < count && target_vector % VARIANT_THREADS == threadIdx.x;
        if (target == MASKED_TOKEN) {
            if constexpr (row_in_shared) cp_async_wait<0>();
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
                if (row_in_shared && more) copy(i, step);
                logits[i] = {};
            }
            if (rank == 0 && threadIdx.x == 0) ((float*)p.ce)[token] = 0.0f;
            continue;
        }
        // In flight during the first pass. No other thread replaces it.
        const float target_logit = has_target ? to_float(((const KEY_X*)p.logits)[target_at]) : 0.0f;
        SoftmaxSum sums;
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 4
        for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
            if constexpr (row_in_shared) { // later copies may be in flight
                if (i + 3 * VARIANT_THREADS < count)
                    cp_async_wait<3>();
                else if (i + 2 * VARIANT_THREADS < count)
                    cp_async_wait<2>();
                else if (i + VARIANT_THREADS < count)
                    cp_async_wait<1>();
                else
                    cp_async_wait<0>();
            }
            accumulate(sums, row[i]);
        }
        sums = reduce<OverRow>(sums, 0.0f, storage, iteration++);

        const float factor = loss_scale * reciprocal(sums.sum);
        auto gradient = [&](float logit) { return factor * exp2_ftz(fma_rn(logit, LOG2_E, -sums.shift)); };
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 2
        for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
            const Vector a = row[i];
            if (row_in_shared && more) copy(i, step);
            float gradients[width];
#pragma unroll
            for (uint32_t j = 0; j < width; j++) gradients[j] = gradient(a[j]);
            logits[i] = Vector::of(gradients);
        }
        // The target's element again, now with the one-hot term that the store above omitted.
        if (has_target) {
            ((KEY_X*)p.logits)[target_at] = from_float<KEY_X>(gradient(target_logit) - loss_scale);
            ((float*)p.ce)[token] = LN_2 * (log2f(sums.sum) - fma_rn(target_logit, LOG2_E, -sums.shift));
        }
    }
}

ROW_KERNEL(head_ce_params) {
    __shared__ ReductionStorage<SoftmaxSum> storage;
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        cross_entropy<WIDTH_OF(KEY_X)>(p, storage);
    else
        cross_entropy<1>(p, storage);
}
