// Distillation losses and the gradient of the student's logits, in place, in one launch over a chunk.
// VARIANT_CLUSTER blocks a token: a first walk over both rows keeps online statistics (maximum; sums at temperature T
// and at 1; the KL's cross term), a second writes the gradient. With VARIANT_KEEP the first walk leaves the rows in
// shared memory, so that each logit is read once. Rows of equal bits give a KL of exactly 0.
#include "head/cluster.cuh"
#include "head/statistics.cuh"

// The logits of a token at both temperatures, as powers of two: 2^(logit * scale - shift) for a shift close to
// largest * scale. ONE is how the exponential at temperature 1 follows from that at T: as its power 1 or 2, or by
// another exponential (0).
struct Row {
    float scale, s_shift, t_shift;
};
template <uint32_t ONE> __device__ __forceinline__ float at_one(float soft, float exponent, float temperature) {
    if constexpr (ONE == 1) return soft;
    if constexpr (ONE == 2) return soft * soft;
    return exp2_flushed(exponent * temperature);
}

// Sums of a part of the row, below the shifts of that part.
struct Sums {
    float s_shift, t_shift, s_sum, s_soft, t_soft, difference;

    // Below other shifts, not smaller ones. An empty part has the lowest shifts and sums of 0.
    template <uint32_t ONE> __device__ __forceinline__ void move_to(float s, float t, float temperature) {
        const float s_shrink = exp2_flushed(s_shift - s), t_shrink = exp2_flushed(t_shift - t);
        s_sum *= at_one<ONE>(s_shrink, s_shift - s, temperature);
        s_soft *= s_shrink;
        t_soft *= t_shrink;
        difference *= t_shrink;
        s_shift = s, t_shift = t;
    }
};

// The sums of a group's lanes; every lane gets them.
template <uint32_t ONE> __device__ __forceinline__ Sums combine_group(Sums sums, float temperature) {
    sums.move_to<ONE>(group_max(sums.s_shift), group_max(sums.t_shift), temperature);
    sums.s_sum = group_sum(sums.s_sum), sums.s_soft = group_sum(sums.s_soft);
    sums.t_soft = group_sum(sums.t_soft), sums.difference = group_sum(sums.difference);
    return sums;
}

// Sums over the warps, then the blocks, that share the row: each warp reads all parts, a lane a part, so the order of
// additions is the same everywhere. In a cluster the caller ends with `wait_cluster`.
template <uint32_t ONE> __device__ __forceinline__ Sums combine(Sums sums, float temperature) {
    constexpr uint32_t warps = VARIANT_THREADS / WARP;
    __shared__ Sums of_warps[warps];
    const Sums empty = {LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
    const uint32_t lane = threadIdx.x % WARP;
    sums = combine_group<ONE>(sums, temperature);
    if (lane == 0) of_warps[threadIdx.x / WARP] = sums;
    sync_block();
    sums = combine_group<ONE>(lane < warps ? of_warps[lane] : empty, temperature);
#if VARIANT_CLUSTER > 1
    __shared__ Sums of_block;
    if (threadIdx.x == 0) of_block = sums;
    arrive_cluster();
    wait_cluster();
    sums = empty;
    if (lane < VARIANT_CLUSTER)
        sums = {load_cluster(&of_block.s_shift, lane), load_cluster(&of_block.t_shift, lane),
                load_cluster(&of_block.s_sum, lane),   load_cluster(&of_block.s_soft, lane),
                load_cluster(&of_block.t_soft, lane),  load_cluster(&of_block.difference, lane)};
    sums = combine_group<ONE>(sums, temperature);
    arrive_cluster();
#endif
    return sums;
}

template <uint32_t ONE, uint32_t width> __device__ __forceinline__ void distill(const head_distill_params& p) {
    typedef vector<KEY_X, width> Vector;
#if VARIANT_KEEP
    DYNAMIC_SHARED(Vector, kept);
#endif
    const uint32_t token = blockIdx.x / VARIANT_CLUSTER, rank = blockIdx.x % VARIANT_CLUSTER;
    const Vector* t = (const Vector*)((const KEY_X*)p.teacher + uint64_t(token) * p.vocab);
    Vector* s = (Vector*)((KEY_X*)p.student + uint64_t(token) * p.vocab);
    const uint32_t target = ((const uint32_t*)p.targets)[token];
    const uint32_t vectors = p.vocab / width, share = (vectors + VARIANT_CLUSTER - 1) / VARIANT_CLUSTER;
    const uint32_t first = rank * share, end = min(first + share, vectors);
    if (target == MASKED_TOKEN) { // the whole cluster leaves
        for (uint32_t i = first + threadIdx.x; i < end; i += VARIANT_THREADS) s[i] = {};
        if (rank == 0 && threadIdx.x == 0) ((float*)p.kd)[token] = ((float*)p.ce)[token] = 0.0f;
        return;
    }
    // Read before anyone replaces it, and on its way during the first walk.
    const float target_logit = to_float(((const KEY_X*)s)[target]);
    const float temperature = p.temperature, inverse = reciprocal(temperature), scale = LOG2_E * inverse;

    Sums sums = {LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll VARIANT_UNROLL
    for (uint32_t i = first + threadIdx.x; i < end; i += VARIANT_THREADS) {
        const Vector a = s[i], b = t[i];
#if VARIANT_KEEP
        kept[i - first] = a, kept[share + i - first] = b;
#endif
        const float s_shift = fmaxf(sums.s_shift, largest(a) * scale), t_shift = fmaxf(sums.t_shift, largest(b) * scale);
        if (s_shift > sums.s_shift || t_shift > sums.t_shift) sums.move_to<ONE>(s_shift, t_shift, temperature);
#pragma unroll
        for (uint32_t j = 0; j < width; j++) {
            const float exponent = __fmaf_rn(a[j], scale, -sums.s_shift);
            const float soft = exp2_flushed(exponent), weight = exp2_flushed(__fmaf_rn(b[j], scale, -sums.t_shift));
            sums.s_sum += at_one<ONE>(soft, exponent, temperature);
            sums.s_soft += soft;
            sums.t_soft += weight;
            sums.difference += weight * (b[j] - a[j]);
        }
    }
    sums = combine<ONE>(sums, temperature);
    if (rank == 0 && threadIdx.x == 0) {
        const float kl = sums.difference * inverse * reciprocal(sums.t_soft) -
                         LN_2 * ((sums.t_shift - sums.s_shift) + (log2f(sums.t_soft) - log2f(sums.s_soft)));
        ((float*)p.kd)[token] = kl < 0.0f ? 0.0f : kl; // not fmaxf, which would hide a NaN
        const float exponent = __fmaf_rn(target_logit, scale, -sums.s_shift) * temperature;
        ((float*)p.ce)[token] = LN_2 * (log2f(sums.s_sum) - exponent);
    }

    const float loss_scale = ((const micro_scalars*)p.micro)->loss_scale;
    const float kd_scale = loss_scale * p.alpha * temperature, ce_scale = loss_scale * (1.0f - p.alpha);
    const float s_factor = kd_scale * reciprocal(sums.s_soft), t_factor = kd_scale * reciprocal(sums.t_soft);
    const float one_factor = ce_scale * reciprocal(sums.s_sum);
#pragma unroll VARIANT_UNROLL
    for (uint32_t i = first + threadIdx.x; i < end; i += VARIANT_THREADS) {
#if VARIANT_KEEP
        const Vector a = kept[i - first], b = kept[share + i - first];
#else
        const Vector a = s[i], b = t[i];
#endif
        float gradient[width];
#pragma unroll
        for (uint32_t j = 0; j < width; j++) {
            const float exponent = __fmaf_rn(a[j], scale, -sums.s_shift);
            const float soft = exp2_flushed(exponent), weight = exp2_flushed(__fmaf_rn(b[j], scale, -sums.t_shift));
            gradient[j] = product(soft, s_factor) - product(weight, t_factor) +
                          one_factor * at_one<ONE>(soft, exponent, temperature);
        }
        if (i == target / width)
#pragma unroll
            for (uint32_t j = 0; j < width; j++)
                if (j == target % width) gradient[j] -= ce_scale;
        s[i] = Vector::of(gradient);
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
