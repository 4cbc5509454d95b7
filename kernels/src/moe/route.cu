// Chooses the experts of each token: its largest logits, one after the other, of equals the lower. A warp takes a
// token, and a lane every 32nd logit. Then each thread counts the choices of an expert in the group, in order: no
// atomics. Weights are softmax over all experts, or over those chosen if KEY_NORMALIZE; that of the shared expert is a
// sigmoid. A NaN is chosen last, and makes all weights of its token NaN.
// Bound: latency of the choices' reductions. Source: Shazeer et al., "Outrageously Large Neural Networks", 2017.
#include "moe.h"
#include "vector.cuh"

enum : uint32_t {
    EXPERTS = KEY_EXPERTS,
    CHOSEN = KEY_CHOSEN,
    CHOICES = CHOSEN + KEY_SHARED,
    MATRICES = EXPERTS + KEY_SHARED,
    PER_LANE = (EXPERTS + WARP - 1) / WARP, // logits
    WARPS = VARIANT_THREADS / WARP,
};

// Orders floats as integers from 1 on: NaN first, then by value, zeros of both signs alike.
__device__ __forceinline__ uint32_t order_of(float value) {
    const uint32_t bits = bits_of(value + 0.0f);
    return value != value ? 1 : bits >> 31 ? ~bits : bits | 0x80000000u;
}
// The float of an order; a NaN for that of NaN.
__device__ __forceinline__ float float_of_order(uint32_t order) {
    return float_of(order >> 31 ? order ^ 0x80000000u : ~order);
}

// A candidate: a larger order first, of equals the lower expert.
struct Candidate {
    uint32_t order, expert;
    __device__ __forceinline__ bool precedes(const Candidate& other) const {
        return order > other.order || (order == other.order && expert < other.expert);
    }
};

// The first of all lanes' candidates.
__device__ __forceinline__ Candidate first_of_warp(Candidate best) {
#pragma unroll
    for (uint32_t lane_mask = WARP / 2; lane_mask > 0; lane_mask /= 2) {
        const Candidate other = {shuffle_xor(best.order, lane_mask), shuffle_xor(best.expert, lane_mask)};
        if (other.precedes(best)) best = other;
    }
    return best;
}

KERNEL(moe_route_params) {
    __shared__ uint32_t chosen[ROUTE_GROUP * CHOICES];
    const uint32_t lane = threadIdx.x % WARP, first = blockIdx.x * ROUTE_GROUP;
    const uint32_t tokens = min(p.tokens - first, uint32_t(ROUTE_GROUP));
    for (uint32_t within = threadIdx.x / WARP; within < tokens; within += WARPS) {
        const KEY_X* logits = (const KEY_X*)p.logits + uint64_t(first + within) * p.columns;
        uint32_t orders[PER_LANE]; // 0: taken, or none
#pragma unroll
        for (uint32_t i = 0; i < PER_LANE; i++) {
            const uint32_t expert = i * WARP + lane;
            orders[i] = expert < EXPERTS ? order_of(to_float(logits[expert])) : 0;
        }
        float top = 0.0f, all = 0.0f, sum = 0.0f, own = 0.0f;
        uint32_t own_choice = EXPERTS;
#pragma unroll 1
        for (uint32_t round = 0; round < CHOSEN; round++) {
            Candidate best = {0, MATRICES};
#pragma unroll
            for (uint32_t i = 0; i < PER_LANE; i++) {
                const Candidate candidate = {orders[i], i * WARP + lane};
                if (candidate.precedes(best)) best = candidate;
            }
            best = first_of_warp(best);
            if (round == 0) {
                top = float_of_order(best.order);
                // All experts' exponentials, once: NaN if one is.
#pragma unroll
                for (uint32_t i = 0; i < PER_LANE; i++)
                    if (orders[i]) all += exp2_ftz(LOG2_E * (float_of_order(orders[i]) - top));
                all = group_sum(all);
            }
#pragma unroll
            for (uint32_t i = 0; i < PER_LANE; i++)
                if (i * WARP + lane == best.expert) orders[i] = 0;
            const float value = exp2_ftz(LOG2_E * (float_of_order(best.order) - top));
            sum += value;
            if (round == lane) {
                own = value;
                own_choice = best.expert;
            }
        }
        float weight = all == all ? own / (KEY_NORMALIZE ? sum : all) : all;
        if (KEY_SHARED && lane == CHOSEN) weight = sigmoid(to_float(logits[EXPERTS]));
        if (lane < CHOICES) {
            const uint64_t at = uint64_t(first + within) * CHOICES + lane;
            ((uint32_t*)p.choices)[at] = own_choice;
            ((float*)p.weights)[at] = weight;
            chosen[within * CHOICES + lane] = own_choice;
        }
    }
    sync_block();
    for (uint32_t expert = threadIdx.x; expert < MATRICES; expert += VARIANT_THREADS) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < tokens * CHOICES; i++)
            if (chosen[i] == expert) ((uint32_t*)p.ranks)[uint64_t(first) * CHOICES + i] = count++;
        ((uint32_t*)p.counts)[uint64_t(blockIdx.x) * MATRICES + expert] = count;
    }
}
