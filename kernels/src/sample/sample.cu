// Draws a token of each row in proportion to exp(logit / temperature), among the tokens that top-k and top-p leave, by
// one random number: inversion of the distribution. A CTA takes a row and reads it twice, once more where it draws by
// other weights than those of the log-sum-exp, and once for each digit of a selection. All that is summed is an integer
// and every function is a polynomial: any GPU and the host agree bit for bit.
// Bound: memory, the row from L2 but for the first time; next to it the instructions of exponentials.
// Sources: Devroye, "Non-Uniform Random Variate Generation", 1986 (inversion); Holtzman et al., "The Curious Case of
// Neural Text Degeneration", 2020 (top-p).
#include "early.cuh"
#include "sample.h"
#include "sample/philox.cuh"
#include "sample/polynomial.cuh"
#include "sample/select.cuh"

// The lowest rank that top-k and then top-p leave. `scaled` is a logit less the largest one, over the temperature.
template <uint32_t width, typename Scaled>
__device__ __forceinline__ uint64_t lowest_rank(const sample_params& p, Row<width> row, Scratch& scratch, Scaled scaled) {
    uint64_t lowest = 0;
    if (p.top_k > 0 && p.top_k < p.vocab) lowest = select(row, 0, p.top_k, scratch, [](float) { return uint64_t(1); });
    if (p.top_p < 1.0f) {
        const auto weight = [&](float logit) { return weight_of(scaled(logit)); };
        uint64_t total[1] = {};
        row.each([&](uint32_t id, float logit) { total[0] += rank_of(logit, id) >= lowest ? weight(logit) : 0; });
        block_sums(total, scratch);
        const uint64_t target = uint64_t(double(p.top_p) * double(total[0]));
        lowest = select(row, lowest, target > 0 ? target : 1, scratch, weight);
    }
    return lowest;
}

// Draws a token in proportion to its weight: the first that the weights up to it take above a number uniform below
// their total, which is returned. A warp sums a part of the row, and the part that reaches the number is divided anew.
template <uint32_t width, typename Weight>
__device__ __forceinline__ uint64_t draw(Row<width> row, uint64_t random, Scratch& scratch, Weight weight,
                                         uint32_t& token) {
    enum : uint32_t { WARPS = VARIANT_THREADS / WARP };
    const auto add = [](uint64_t a, uint64_t b) { return a + b; };
    uint64_t total = 0, target = 0;
    uint32_t first = 0, count = row.vocab / width; // vectors
    do {
        const uint32_t part = (count + WARPS - 1) / WARPS, begin = min(threadIdx.x / WARP * part, count);
        uint64_t sums[1] = {};
        row.each_vector(
            first + begin, first + min(begin + part, count), WARP,
            [&](uint32_t id, const typename Row<width>::Vector& logits) {
#pragma unroll
                for (uint32_t j = 0; j < width; j++) sums[0] += weight(logits[j], id + j);
            },
            [] {});
        combine_warps(sums, scratch, add);
        if (total == 0) {
            for (uint32_t warp = 0; warp < WARPS; warp++) total += scratch.warps[warp][0];
            target = mul_hi(random, total);
        }
        uint32_t found = 0;
        for (; target >= scratch.warps[found][0]; found++) target -= scratch.warps[found][0];
        sync_block(); // the sums have been read
        first += found * part, count = min(part, count - found * part);
    } while (count > 1);
    const typename Row<width>::Vector logits = load_vector<width>(row.logits, first);
    token = first * width;
#pragma unroll
    for (uint32_t j = 0; j + 1 < width; j++) {
        const uint64_t own = weight(logits[j], first * width + j);
        if (token == first * width + j && target >= own) target -= own, token++;
    }
    return total;
}

template <uint32_t width> __device__ __forceinline__ void sample(const sample_params& p, Scratch& scratch) {
    const uint32_t index = blockIdx.x;
    const Row<width> row = {(const KEY_X*)p.logits + uint64_t(index) * p.vocab, p.vocab};

    const uint64_t best = highest_rank(row, scratch);
    uint32_t token = ~uint32_t(best);
    float log_prob = 0.0f, lse = 0.0f;
    if (best == NOT_FINITE) {
        token = NO_TOKEN;
    } else {
        const float top = to_float(row.logits[token]);
        uint64_t total[1] = {};
        if (p.temperature > 0.0f) {
            const float inverse = 1.0f / p.temperature;
            const auto scaled = [&](float logit) { return mul_rn(logit - top, inverse); };
            const uint64_t lowest = lowest_rank(p, row, scratch, scaled);
            const uint32_t* sequence = (const uint32_t*)p.sequence + 2 * uint64_t(index);
            const uint64_t random = philox(p.seed, {((const uint32_t*)p.position)[index], sequence[0], sequence[1]});
            const auto of_all = [&](float logit, uint32_t) { return weight_of(logit - top); };
            const auto of_kept = [&](float logit, uint32_t id) {
                return rank_of(logit, id) >= lowest ? weight_of(scaled(logit)) : 0;
            };
            if (inverse == 1.0f && lowest == 0) // the weights of the log-sum-exp
                total[0] = draw(row, random, scratch, of_all, token);
            else
                draw(row, random, scratch, of_kept, token);
        }
        if (total[0] == 0) {
            row.each([&](uint32_t, float logit) { total[0] += weight_of(logit - top); });
            block_sums(total, scratch);
        }
        const float log_sum = ln(mul_rn(float(total[0]), 0x1p-44f));
        lse = top + log_sum;
        log_prob = to_float(row.logits[token]) - top - log_sum;
    }
    if (threadIdx.x > 0) return;
    ((uint32_t*)p.token)[index] = token;
    ((float*)p.log_prob)[index] = log_prob;
    ((float*)p.lse)[index] = lse;
}

KERNEL(sample_params) {
    __shared__ Scratch scratch;
    begin_early();
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        sample<WIDTH_OF(KEY_X)>(p, scratch);
    else
        sample<1>(p, scratch);
}
