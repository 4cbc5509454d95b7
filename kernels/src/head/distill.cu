// Distillation losses and the gradient of the student's logits, in place, in one launch over a chunk.
// Two walks over both rows of a token: the first keeps online statistics (sums at temperature T and at 1; the KL's
// cross term), the second writes the gradient. A cluster keeps the rows in shared memory between them and fetches the next
// token's during the second; else a block reads them twice. Rows of equal bits give a KL and its gradient of exactly 0.
#include "head/statistics.cuh"
#include "hopper.cuh"

// Sums over a part of the row of 2^(logit * scale - shift), at temperature T unless they say otherwise. A shift is near
// the part's largest logit * scale; that of an empty part is the lowest.
struct alignas(8) Sums {
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

// The sums of a group of lanes; each of them gets the result.
template <uint32_t ONE, uint32_t lanes> __device__ __forceinline__ Sums combine_lanes(Sums sums, float temperature) {
    shift_to<ONE>(sums, group_max<lanes>(sums.s_shift), group_max<lanes>(sums.t_shift), temperature);
    sums.s_one = group_sum<lanes>(sums.s_one), sums.s_soft = group_sum<lanes>(sums.s_soft);
    sums.t_soft = group_sum<lanes>(sums.t_soft), sums.difference = group_sum<lanes>(sums.difference);
    return sums;
}

// Where the warps of a block and the blocks of a cluster put their sums, in turns: no one writes what another may still
// read. A barrier counts the bytes that other blocks send: meeting them would wait for all earlier stores to global memory.
struct Meeting {
    enum : uint32_t { WARPS = VARIANT_THREADS / WARP, TURNS = VARIANT_CLUSTER == 1 ? 2 : 1 };
    Sums of_warps[TURNS][WARPS]; // in a cluster the block meets once more after they have been read
    Sums of_blocks[2][VARIANT_CLUSTER];
    uint64_t arrived[2];
};

// Over the lanes, then the warps, then the blocks that share the row; all threads get the result. `turn` counts the calls.
template <uint32_t ONE> __device__ __forceinline__ Sums combine(Sums sums, float temperature, Meeting& meeting, uint32_t turn) {
    const uint32_t lane = threadIdx.x % WARP, place = turn % 2;
    Sums* of_warps = meeting.of_warps[turn % Meeting::TURNS];
    sums = combine_lanes<ONE, WARP>(sums, temperature);
    if (lane == 0) of_warps[threadIdx.x / WARP] = sums;
    sync_block();
    if (VARIANT_CLUSTER == 1 || threadIdx.x < WARP) {
        sums = lane < Meeting::WARPS ? of_warps[lane] : Sums{LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
        sums = combine_lanes<ONE, WARP>(sums, temperature);
    }
    if (VARIANT_CLUSTER == 1) return sums;
    const uint32_t rank = cluster_rank(), barrier = shared_address(&meeting.arrived[place]);
    Sums* own = &meeting.of_blocks[place][rank];
    if (threadIdx.x == 0) {
        *own = sums;
        barrier_expect(barrier, (VARIANT_CLUSTER - 1) * sizeof(Sums));
    }
    if (threadIdx.x < VARIANT_CLUSTER && lane != rank) {
        const uint32_t there = shared_address(own);
        send(there, lane, barrier, sums.s_shift, sums.t_shift);
        send(there + 8, lane, barrier, sums.s_one, sums.s_soft);
        send(there + 16, lane, barrier, sums.t_soft, sums.difference);
    }
    if (threadIdx.x < WARP) barrier_wait(barrier, turn / 2 % 2);
    sync_block(); // for other warps too; and `of_warps` has been read
    return combine_lanes<ONE, VARIANT_CLUSTER>(meeting.of_blocks[place][lane % VARIANT_CLUSTER], temperature);
}

template <uint32_t ONE, uint32_t width>
__device__ __forceinline__ void distill(const head_distill_params& p, Meeting& meeting) {
    typedef vector<KEY_X, width> Vector;
    constexpr bool keep = VARIANT_CLUSTER > 1 && width > 1;
    const float temperature = p.temperature, inverse = reciprocal(temperature), scale = LOG2_E * inverse;
    const float slack = 16.0f * fminf(1.0f, inverse);
    const float loss_scale = ((const micro_scalars*)p.micro)->loss_scale;
    const float kd_scale = loss_scale * p.alpha * temperature, ce_scale = loss_scale * (1.0f - p.alpha);

    // This block's share of every row, in vectors. A thread takes every VARIANT_THREADS-th of them.
    const uint32_t rank = blockIdx.x % VARIANT_CLUSTER, clusters = gridDim.x / VARIANT_CLUSTER;
    const uint32_t vectors = p.vocab / width, share = (vectors + VARIANT_CLUSTER - 1) / VARIANT_CLUSTER;
    const uint32_t first = min(rank * share, vectors), count = min(share, vectors - first);
    uint32_t token = blockIdx.x / VARIANT_CLUSTER, turn = 0;
    const uint64_t start = uint64_t(token) * vectors + first, step = uint64_t(clusters) * vectors;
    Vector* s = (Vector*)p.student + start;
    const Vector* t = (const Vector*)p.teacher + start;

    if (VARIANT_CLUSTER > 1) {
        if (threadIdx.x == 0) {
            for (uint32_t place = 0; place < 2; place++) barrier_init(shared_address(&meeting.arrived[place]), 1);
            barrier_init_fence();
        }
        sync_cluster(); // all blocks run and can be sent to
    }

    // What a thread reads twice it keeps for itself alone: it waits for its own copies and for no one else's.
    DYNAMIC_SHARED(Vector, kept);
    auto fetch = [&](uint32_t i, uint64_t ahead) {
        copy_async(shared_address(kept + i), s + ahead + i);
        copy_async(shared_address(kept + share + i), t + ahead + i);
        copy_async_commit();
    };
    if constexpr (keep)
        if (token < p.tokens)
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) fetch(i, 0);

    for (; token < p.tokens; token += clusters, s += step, t += step) { // the same tokens for the whole cluster
        const Vector *s_row = keep ? kept : s, *t_row = keep ? kept + share : t;
        const bool more = token + clusters < p.tokens;
        const uint32_t target = ((const uint32_t*)p.targets)[token];
        const uint64_t place = uint64_t(token) * p.vocab + target; // of the target's logit
        const uint32_t vector_of_target = target / width - first; // wraps where another block has it
        const bool has_target = vector_of_target < count && vector_of_target % VARIANT_THREADS == threadIdx.x;
        const bool reports = rank == 0 && threadIdx.x == VARIANT_THREADS - 1;
        if (target == MASKED_TOKEN) {
            if constexpr (keep) copy_async_wait<0>();
            for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
                if (keep && more) fetch(i, step);
                s[i] = {};
            }
            if (reports) ((float*)p.kd)[token] = ((float*)p.ce)[token] = 0.0f;
            continue;
        }
        // On its way during the first walk. No one else replaces it.
        const float target_logit = has_target ? to_float(((const KEY_X*)p.student)[place]) : 0.0f;
        Sums sums = {LOWEST, LOWEST, 0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 4
        for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
            if constexpr (keep) { // later copies may be under way
                if (i + 2 * VARIANT_THREADS < count)
                    copy_async_wait<2>();
                else if (i + VARIANT_THREADS < count)
                    copy_async_wait<1>();
                else
                    copy_async_wait<0>();
            }
            add<ONE, width>(sums, s_row[i], t_row[i], scale, temperature, slack);
        }
        sums = combine<ONE>(sums, temperature, meeting, turn++);

        const float s_factor = kd_scale * reciprocal(sums.s_soft), t_factor = kd_scale * reciprocal(sums.t_soft);
        const float one_factor = ce_scale * reciprocal(sums.s_one);
        auto gradient = [&](float a, float b) {
            const float exponent = __fmaf_rn(a, scale, -sums.s_shift);
            const float soft = exp2_flushed(exponent), weight = exp2_flushed(__fmaf_rn(b, scale, -sums.t_shift));
            return product(soft, s_factor) - product(weight, t_factor) +
                   one_factor * at_one<ONE>(soft, exponent, temperature);
        };
#pragma unroll VARIANT_CLUSTER > 1 ? 1 : 2
        for (uint32_t i = threadIdx.x; i < count; i += VARIANT_THREADS) {
            const Vector a = s_row[i], b = t_row[i];
            if (keep && more) fetch(i, step);
            float gradients[width];
#pragma unroll
            for (uint32_t j = 0; j < width; j++) gradients[j] = gradient(a[j], b[j]);
            s[i] = Vector::of(gradients);
        }
        // The target's, once more and whole: it has just been stored without the one-hot term.
        if (has_target) {
            const float whole = gradient(target_logit, to_float(((const KEY_X*)p.teacher)[place])) - ce_scale;
            ((KEY_X*)p.student)[place] = from_float<KEY_X>(whole);
            const float exponent = __fmaf_rn(target_logit, scale, -sums.s_shift) * temperature;
            ((float*)p.ce)[token] = LN_2 * (log2f(sums.s_one) - exponent);
        }
        if (reports) {
            const float kl = sums.difference * inverse * reciprocal(sums.t_soft) -
                             LN_2 * ((sums.t_shift - sums.s_shift) + (log2f(sums.t_soft) - log2f(sums.s_soft)));
            ((float*)p.kd)[token] = kl < 0.0f ? 0.0f : kl; // not fmaxf, which would hide a NaN
        }
    }
}

template <uint32_t width> __device__ __forceinline__ void distill(const head_distill_params& p, Meeting& meeting) {
    if (p.temperature == 1.0f)
        distill<1, width>(p, meeting);
    else if (p.temperature == 2.0f)
        distill<2, width>(p, meeting);
    else
        distill<0, width>(p, meeting);
}

// Clusters need sm_90.
#if VARIANT_CLUSTER == 1
KERNEL(head_distill_params) {
#else
CLUSTER_KERNEL(head_distill_params, VARIANT_CLUSTER) {
#endif
    __shared__ Meeting meeting;
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        distill<WIDTH_OF(KEY_X)>(p, meeting);
    else
        distill<1>(p, meeting);
}
