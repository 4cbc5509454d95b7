// Distillation losses and the gradient of the student's logits, in place, in one launch over a chunk.
// Two walks over both rows of a token: the first keeps online statistics (sums at temperature T and at 1; the KL's
// cross term), the second writes the gradient. A cluster of blocks keeps the rows in shared memory between them, so that
// each logit is read once; otherwise a block reads them twice. Rows of equal bits give a KL and its gradient of exactly 0.
#include "head/cluster.cuh"
#include "head/statistics.cuh"

// Sums over a part of the row of 2^(logit * scale - shift), at temperature T unless they say otherwise. A shift is near
// the part's largest logit * scale; that of an empty part is the lowest.
struct Sums {
    float s_shift, t_shift, s_one, s_soft, t_soft, difference;
};

// How 2^exponent at temperature 1 follows from that at T, `soft`: ONE is 1 where T is 1, 2 where T is 2, else 0.
template <uint32_t ONE> __device__ __forceinline__ float at_one(float soft, float exponent, float temperature) {
    if constexpr (ONE == 1) return soft;
    if constexpr (ONE == 2) return soft * soft;
    return exp2_flushed(exponent * temperature);
}

// The same sums with other shifts.
template <uint32_t ONE>
__device__ __forceinline__ void shift_to(Sums& sums, float s_shift, float t_shift, float temperature) {
    const float s_shrink = exp2_flushed(sums.s_shift - s_shift), t_shrink = exp2_flushed(sums.t_shift - t_shift);
    sums.s_one *= at_one<ONE>(s_shrink, sums.s_shift - s_shift, temperature);
    sums.s_soft *= s_shrink;
    sums.t_soft *= t_shrink;
    sums.difference *= t_shrink;
    sums.s_shift = s_shift, sums.t_shift = t_shift;
}

// Adds a vector of each row. Shifts move only when a logit is so much larger that sums could overflow: seldom.
template <uint32_t ONE, uint32_t width>
__device__ __forceinline__ void add(Sums& sums, const vector<KEY_X, width>& s, const vector<KEY_X, width>& t,
                                    float scale, float temperature, float slack) {
    const float s_shift = largest(s) * scale, t_shift = largest(t) * scale;
    if (s_shift > sums.s_shift + slack || t_shift > sums.t_shift + slack)
        shift_to<ONE>(sums, fmaxf(s_shift, sums.s_shift), fmaxf(t_shift, sums.t_shift), temperature);
#pragma unroll
    for (uint32_t j = 0; j < width; j++) {
        const float exponent = __fmaf_rn(s[j], scale, -sums.s_shift);
        const float soft = exp2_flushed(exponent), weight = exp2_flushed(__fmaf_rn(t[j], scale, -sums.t_shift));
        sums.s_one += at_one<ONE>(soft, exponent, temperature);
        sums.s_soft += soft;
        sums.t_soft += weight;
        sums.difference += weight * (t[j] - s[j]);
    }
}

// The sums of a warp's lanes; every lane gets them.
template <uint32_t ONE> __device__ __forceinline__ Sums combine_warp(Sums sums, float temperature) {
    shift_to<ONE>(sums, group_max(sums.s_shift), group_max(sums.t_shift), temperature);
    sums.s_one = group_sum(sums.s_one), sums.s_soft = group_sum(sums.s_soft);
    sums.t_soft = group_sum(sums.t_soft), sums.difference = group_sum(sums.difference);
    return sums;
}

// Over the warps, then the blocks, that share the row: each warp reads all parts, a lane a part, so that the order of
// additions is the same everywhere. In a cluster the caller ends with `wait_cluster`.
template <uint32_t ONE> __device__ __forceinline__ Sums combine(Sums sums, float temperature) {
    constexpr uint32_t warps = VARIANT_THREADS / WARP;
    __shared__ Sums of_warps[warps];
    const Sums empty = {LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
    const uint32_t lane = threadIdx.x % WARP;
    sums = combine_warp<ONE>(sums, temperature);
    if (lane == 0) of_warps[threadIdx.x / WARP] = sums;
    sync_block();
    sums = empty;
    if (lane < warps) sums = of_warps[lane];
    sums = combine_warp<ONE>(sums, temperature);
#if VARIANT_CLUSTER > 1
    __shared__ Sums of_block;
    if (threadIdx.x == 0) of_block = sums;
    arrive_cluster();
    wait_cluster();
    sums = empty;
    if (lane < VARIANT_CLUSTER)
        sums = {load_cluster(&of_block.s_shift, lane), load_cluster(&of_block.t_shift, lane),
                load_cluster(&of_block.s_one, lane),   load_cluster(&of_block.s_soft, lane),
                load_cluster(&of_block.t_soft, lane),  load_cluster(&of_block.difference, lane)};
    sums = combine_warp<ONE>(sums, temperature);
    arrive_cluster();
#endif
    return sums;
}

template <uint32_t ONE, uint32_t width> __device__ __forceinline__ void distill(const head_distill_params& p) {
    typedef vector<KEY_X, width> Vector;
    const uint32_t token = blockIdx.x / VARIANT_CLUSTER, rank = blockIdx.x % VARIANT_CLUSTER;
    const uint32_t target = ((const uint32_t*)p.targets)[token];
    // This block's share of the rows, in vectors.
    const uint32_t vectors = p.vocab / width, share = (vectors + VARIANT_CLUSTER - 1) / VARIANT_CLUSTER;
    const uint32_t first = min(rank * share, vectors), count = min(share, vectors - first);
    const Vector* t = (const Vector*)((const KEY_X*)p.teacher + uint64_t(token) * p.vocab) + first;
    Vector* s = (Vector*)((KEY_X*)p.student + uint64_t(token) * p.vocab) + first;
    if (target == MASKED_TOKEN) { // the whole cluster leaves
        for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) s[i] = {};
        if (rank == 0 && threadIdx.x == 0) ((float*)p.kd)[token] = ((float*)p.ce)[token] = 0.0f;
        return;
    }
    const Vector *s_row = s, *t_row = t; // where the second walk finds them
#if VARIANT_CLUSTER > 1
    // All copies start at once, each VARIANT_THREADS vectors of both rows: a thread needs one vector of each.
    enum : uint32_t { CHUNKS = 32 };
    __shared__ Arrival arrivals[CHUNKS];
    const bool keep = width > 1;
    if constexpr (keep) {
        DYNAMIC_SHARED(Vector, kept);
        s_row = kept, t_row = kept + share;
        const uint32_t start = threadIdx.x * VARIANT_THREADS;
        if (threadIdx.x < CHUNKS && start < count) {
            Arrival& arrival = arrivals[threadIdx.x];
            const uint32_t bytes = min(uint32_t(VARIANT_THREADS), count - start) * uint32_t(sizeof(Vector));
            arrival.init();
            arrival.announce(2 * bytes);
            arrival.copy(kept + start, s + start, bytes);
            arrival.copy(kept + share + start, t + start, bytes);
        }
        sync_block(); // barriers are there
    }
#endif
    // Read before anyone replaces it, and on its way during the first walk.
    const float target_logit = to_float(((const KEY_X*)p.student)[uint64_t(token) * p.vocab + target]);
    const float temperature = p.temperature, inverse = reciprocal(temperature), scale = LOG2_E * inverse;
    const float slack = 16.0f * fminf(1.0f, inverse);

    Sums sums = {LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 4
    for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
#if VARIANT_CLUSTER > 1
        if (keep) arrivals[i / VARIANT_THREADS].wait();
#endif
        add<ONE, width>(sums, s_row[i], t_row[i], scale, temperature, slack);
    }
    sums = combine<ONE>(sums, temperature);
    if (rank == 0 && threadIdx.x == 0) {
        const float kl = sums.difference * inverse * reciprocal(sums.t_soft) -
                         LN_2 * ((sums.t_shift - sums.s_shift) + (log2f(sums.t_soft) - log2f(sums.s_soft)));
        ((float*)p.kd)[token] = kl < 0.0f ? 0.0f : kl; // not fmaxf, which would hide a NaN
        const float exponent = __fmaf_rn(target_logit, scale, -sums.s_shift) * temperature;
        ((float*)p.ce)[token] = LN_2 * (log2f(sums.s_one) - exponent);
    }

    const float loss_scale = ((const micro_scalars*)p.micro)->loss_scale;
    const float kd_scale = loss_scale * p.alpha * temperature, ce_scale = loss_scale * (1.0f - p.alpha);
    const float s_factor = kd_scale * reciprocal(sums.s_soft), t_factor = kd_scale * reciprocal(sums.t_soft);
    const float one_factor = ce_scale * reciprocal(sums.s_one);
    auto gradient = [&](float student, float teacher) {
        const float exponent = __fmaf_rn(student, scale, -sums.s_shift);
        const float soft = exp2_flushed(exponent), weight = exp2_flushed(__fmaf_rn(teacher, scale, -sums.t_shift));
        return product(soft, s_factor) - product(weight, t_factor) +
               one_factor * at_one<ONE>(soft, exponent, temperature);
    };
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 2
    for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
        const Vector a = s_row[i], b = t_row[i];
        float gradients[width];
#pragma unroll
        for (uint32_t j = 0; j < width; j++) gradients[j] = gradient(a[j], b[j]);
        s[i] = Vector::of(gradients);
    }
    // The target's, once more and whole: by the thread that has just stored it without the one-hot term.
    const uint32_t vector_of_target = target / width - first; // wraps where another block has it
    if (vector_of_target < count && vector_of_target % VARIANT_THREADS == threadIdx.x) {
        const uint64_t place = uint64_t(token) * p.vocab + target;
        const float whole = gradient(target_logit, to_float(((const KEY_X*)p.teacher)[place])) - ce_scale;
        ((KEY_X*)p.student)[place] = from_float<KEY_X>(whole);
    }
#if VARIANT_CLUSTER > 1
    wait_cluster(); // no block leaves while another reads its sums
#endif
}

template <uint32_t width> __device__ __forceinline__ void distill(const head_distill_params& p) {
    if (p.temperature == 1.0f)
        distill<1, width>(p);
    else if (p.temperature == 2.0f)
        distill<2, width>(p);
    else
        distill<0, width>(p);
}

CLUSTER_KERNEL(head_distill_params) {
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        distill<WIDTH_OF(KEY_X)>(p);
    else
        distill<1>(p);
}
