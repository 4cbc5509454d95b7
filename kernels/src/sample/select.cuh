// The order of tokens, and exact selection by it. A token's rank is an integer: its logit's bits in an order-preserving
// form, and below them its id, inverted, as of equal logits the smallest id comes first. So no two have one rank.
// Source: radix selection, as Alabi et al., "Fast k-Selection Algorithms for GPUs", 2012, from the highest digit.
#pragma once
#include "vector.cuh"

enum : uint32_t {
    LOGIT_BITS = 8 * sizeof(KEY_X),
    DIGIT = 2, // bits
    ABOVE = (1 << DIGIT) - 1,
};
#define NOT_FINITE 0xffffffffffffffffull

// The bits of a finite float, ascending with it. Both zeros are one.
__device__ __forceinline__ uint32_t ascending(float value) {
    const uint32_t bits = bits_of(value + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ uint64_t rank_of(float logit, uint32_t id) {
    return uint64_t(ascending(logit) >> (32 - LOGIT_BITS)) << 32 | uint32_t(~id);
}

// A row of logits, of which each thread takes some vectors.
template <uint32_t width> struct Row {
    typedef vector<KEY_X, width> Vector;
    const KEY_X* logits;
    uint32_t vocab;

    // Calls `take` with the first id and the logits of vectors from `begin` to `end`, of which each of `threads`
    // threads takes the next, while two more are on their way, and then `after_each`, which whole warps reach together.
    template <typename Take, typename After>
    __device__ __forceinline__ void each_vector(uint32_t begin, uint32_t end, uint32_t threads, Take take,
                                                After after_each) const {
        uint32_t i = begin + threadIdx.x % threads;
        Vector next[2] = {};
#pragma unroll
        for (uint32_t ahead = 0; ahead < 2; ahead++)
            if (i + ahead * threads < end) next[ahead] = load_vector<width>(logits, i + ahead * threads);
#pragma unroll 1 // it is instantiated often
        for (uint32_t first = begin; first < end; first += threads, i += threads) {
            const Vector values = next[0];
            next[0] = next[1];
            if (i + 2 * threads < end) next[1] = load_vector<width>(logits, i + 2 * threads);
            if (i < end) take(i * width, values);
            after_each();
        }
    }
    // Calls `take` with ids and logits, one by one.
    template <typename Take> __device__ __forceinline__ void each(Take take) const {
        const auto take_all = [&](uint32_t first, const Vector& values) {
#pragma unroll
            for (uint32_t j = 0; j < width; j++) take(first + j, values[j]);
        };
        each_vector(0, vocab / width, VARIANT_THREADS, take_all, [] {});
    }
};

// ---- sums and maxima over a CTA, in integers ------------------------------------------------------------

struct Scratch {
    uint64_t warps[VARIANT_THREADS / WARP][ABOVE], totals[ABOVE];
};

__device__ __forceinline__ uint64_t shuffle_xor(uint64_t value, uint32_t lane_mask) {
    const uint32_t high = shuffle_xor(uint32_t(value >> 32), lane_mask);
    return uint64_t(high) << 32 | shuffle_xor(uint32_t(value), lane_mask);
}

// Combines each of `n` numbers over each warp, and leaves the results in `scratch.warps`.
template <uint32_t n, typename Combine>
__device__ __forceinline__ void combine_warps(uint64_t (&values)[n], Scratch& scratch, Combine combine) {
#pragma unroll
    for (uint32_t i = 0; i < n; i++)
#pragma unroll
        for (uint32_t lanes = WARP / 2; lanes > 0; lanes /= 2) values[i] = combine(values[i], shuffle_xor(values[i], lanes));
    if (threadIdx.x % WARP == 0)
#pragma unroll
        for (uint32_t i = 0; i < n; i++) scratch.warps[threadIdx.x / WARP][i] = values[i];
    sync_block();
}
// Combines each of `n` numbers over the CTA; every thread gets the results.
template <uint32_t n, typename Combine>
__device__ __forceinline__ void combine_block(uint64_t (&values)[n], Scratch& scratch, Combine combine) {
    combine_warps(values, scratch, combine);
    if (threadIdx.x < n) {
        uint64_t total = scratch.warps[0][threadIdx.x];
        for (uint32_t warp = 1; warp < VARIANT_THREADS / WARP; warp++) total = combine(total, scratch.warps[warp][threadIdx.x]);
        scratch.totals[threadIdx.x] = total;
    }
    sync_block();
#pragma unroll
    for (uint32_t i = 0; i < n; i++) values[i] = scratch.totals[i];
}
template <uint32_t n> __device__ __forceinline__ void block_sums(uint64_t (&values)[n], Scratch& scratch) {
    combine_block(values, scratch, [](uint64_t a, uint64_t b) { return a + b; });
}
__device__ __forceinline__ uint64_t block_largest(uint64_t value, Scratch& scratch) {
    uint64_t values[1] = {value};
    combine_block(values, scratch, [](uint64_t a, uint64_t b) { return a < b ? b : a; });
    return values[0];
}

// The rank of the largest logit of a row, NOT_FINITE if one is not finite; every thread gets it.
template <uint32_t width> __device__ __forceinline__ uint64_t highest_rank(Row<width> row, Scratch& scratch) {
    uint64_t best = 0;
    float top = NEGATIVE_INFINITY; // of the warp, whose later ids are larger: of equal logits they lose
    row.each_vector(
        0, row.vocab / width, VARIANT_THREADS,
        [&](uint32_t first, const typename Row<width>::Vector& logits) {
            if (all_finite(logits) && largest(logits) <= top) return;
#pragma unroll
            for (uint32_t j = 0; j < width; j++) {
                const uint64_t rank = is_finite(logits[j]) ? rank_of(logits[j], first + j) : NOT_FINITE;
                best = best < rank ? rank : best;
                top = fmaxf(top, logits[j]);
            }
        },
        [&] { top = group_max(top); });
    return block_largest(best, scratch);
}

// ---- selection -------------------------------------------------------------------------------------------

// The highest rank from which on tokens measure at least `target` together. Only those of rank `lowest` and above
// count, which do measure that much.
template <uint32_t width, typename Measure>
__device__ __forceinline__ uint64_t select(Row<width> row, uint64_t lowest, uint64_t target, Scratch& scratch,
                                           Measure measure) {
    uint64_t prefix = 0, above = 0; // the digits found; the measure of what ranks above all that begin with them
    for (int shift = 32 + LOGIT_BITS - DIGIT; shift >= 0; shift -= DIGIT) {
        if (shift < 32 && (row.vocab - 1) >> shift == 0) { // no id has this digit: inverted, all have
            prefix = prefix << DIGIT | ABOVE;
            continue;
        }
        uint64_t sums[ABOVE] = {}; // of those whose next digit is larger than the index
        row.each([&](uint32_t id, float logit) {
            const uint64_t rank = rank_of(logit, id);
            if (rank < lowest || rank >> shift >> DIGIT != prefix) return;
            const uint64_t size = measure(logit);
            const uint32_t digit = uint32_t(rank >> shift) & ABOVE;
#pragma unroll
            for (uint32_t i = 0; i < ABOVE; i++) sums[i] += digit > i ? size : 0;
        });
        block_sums(sums, scratch);
        uint32_t digit = 0;
        uint64_t larger = sums[0]; // of those with a larger digit
#pragma unroll
        for (uint32_t i = 0; i < ABOVE; i++)
            if (above + sums[i] >= target) digit = i + 1, larger = i + 1 < ABOVE ? sums[i + 1 < ABOVE ? i + 1 : 0] : 0;
        above += larger;
        prefix = prefix << DIGIT | digit;
    }
    return prefix;
}
