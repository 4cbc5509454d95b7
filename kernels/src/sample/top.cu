// Selects the most likely tokens of each row, most likely first. A CTA takes a row and reads it twice, and once for
// each digit of the selection. A thread writes what it keeps behind what the threads before it keep; then each kept
// token counts those of a higher rank, which is its place: no order depends on timing. The others are summed by the
// largest of them, so that their probability as one has a logarithm however small it is.
// Bound: memory, the row from L2 but for the first time. Source: none needed, but for the selection (`select.cuh`).
#include "sample_top.h"
#include "sample/select.cuh"

struct TopScratch {
    Scratch select;
    float sums[4][VARIANT_THREADS / WARP]; // a row of warps for each reduction: none waits for the one before
    uint32_t counts[VARIANT_THREADS];
    uint64_t ranks[MOST_KEPT]; // as threads found them
    float logits[MOST_KEPT];
};

template <uint32_t width> __device__ __forceinline__ void top(const sample_top_params& p, TopScratch& scratch) {
    const Row<width> row = {(const KEY_X*)p.logits + uint64_t(blockIdx.x) * p.vocab, p.vocab};
    uint32_t* ids = (uint32_t*)p.ids + uint64_t(blockIdx.x) * p.keep;
    float* log_probs = (float*)p.log_probs + uint64_t(blockIdx.x) * (p.keep + 1);
    const float inverse = reciprocal(p.temperature), scale = LOG2_E * inverse;
    const uint64_t lowest = select(row, 0, p.keep, scratch.select, [](float) { return uint64_t(1); });

    uint32_t count = 0;
    float rest_top = LOWEST;
    row.each([&](uint32_t id, float logit) {
        if (rank_of(logit, id) >= lowest)
            count++;
        else
            rest_top = fmaxf(rest_top, logit);
    });
    scratch.counts[threadIdx.x] = count;
    rest_top = block_max<VARIANT_THREADS>(rest_top, scratch.sums[0]); // also a barrier
    uint32_t at = 0;
    for (uint32_t thread = 0; thread < threadIdx.x; thread++) at += scratch.counts[thread];
    float rest = 0.0f;
    row.each([&](uint32_t id, float logit) {
        const uint64_t rank = rank_of(logit, id);
        if (rank < lowest)
            rest += exp2_ftz((logit - rest_top) * scale);
        else
            scratch.ranks[at] = rank, scratch.logits[at++] = logit;
    });
    rest = block_sum<VARIANT_THREADS>(rest, scratch.sums[1]);

    float largest = LOWEST;
    for (uint32_t i = threadIdx.x; i < p.keep; i += VARIANT_THREADS) largest = fmaxf(largest, scratch.logits[i]);
    largest = block_max<VARIANT_THREADS>(largest, scratch.sums[2]);
    float kept = 0.0f;
    for (uint32_t i = threadIdx.x; i < p.keep; i += VARIANT_THREADS) kept += exp2_ftz((scratch.logits[i] - largest) * scale);
    kept = block_sum<VARIANT_THREADS>(kept, scratch.sums[3]);
    const float rest_log = (rest_top - largest) * inverse + LN_2 * log2f(rest);
    const float log_total = LN_2 * log2f(kept + exp2_ftz(rest_log * LOG2_E));
    for (uint32_t i = threadIdx.x; i < p.keep; i += VARIANT_THREADS) {
        uint32_t place = 0;
        for (uint32_t j = 0; j < p.keep; j++) place += scratch.ranks[j] > scratch.ranks[i] ? 1 : 0;
        ids[place] = ~uint32_t(scratch.ranks[i]);
        log_probs[place] = (scratch.logits[i] - largest) * inverse - log_total;
    }
    if (threadIdx.x == 0) log_probs[p.keep] = rest_log - log_total;
}

KERNEL(sample_top_params) {
    __shared__ TopScratch scratch;
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        top<WIDTH_OF(KEY_X)>(p, scratch);
    else
        top<1>(p, scratch);
}
