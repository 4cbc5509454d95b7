// Draws a token of each row: the largest of logit / temperature + Gumbel noise, which is a draw from the softmax, among
// the tokens that top-k and top-p leave. A CTA takes a row and reads it two or three times, and once for each digit of
// a selection. All that is summed is an integer and every function is a polynomial: any GPU and the host agree bit for
// bit. Few tokens need logarithms: a random number bounds the noise that is made of it, and the largest score so far is
// known.
// Bound: memory, the row from L2 but for the first time; with noise the instructions of Philox.
// Sources: Maddison et al., "A* Sampling", 2014 (Gumbel-max); Holtzman et al., "The Curious Case of Neural Text
// Degeneration", 2020 (top-p).
#include "sample.h"
#include "sample/noise.cuh"
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

template <uint32_t width> __device__ __forceinline__ void sample(const sample_params& p, Scratch& scratch) {
    const uint32_t index = blockIdx.x, position = ((const uint32_t*)p.position)[index];
    const Row<width> row = {(const KEY_X*)p.logits + uint64_t(index) * p.vocab, p.vocab};

    uint64_t best = 0;
    float top_so_far = NEGATIVE_INFINITY; // of the warp, whose later ids are larger: of equal logits they lose
    row.each(
        [&](uint32_t id, float logit) {
            if (LOWEST <= logit && logit <= top_so_far) return;
            const uint64_t rank = is_finite(logit) ? rank_of(logit, id) : NOT_FINITE;
            best = best < rank ? rank : best;
            top_so_far = fmaxf(top_so_far, logit);
        },
        [&] { top_so_far = group_max(top_so_far); });
    best = block_largest(best, scratch);
    uint32_t token = ~uint32_t(best);
    float log_prob = 0.0f, lse = 0.0f;
    if (best == NOT_FINITE) {
        token = NO_TOKEN;
    } else {
        const float top = to_float(row.logits[token]);
        uint64_t total[1] = {};
        const auto add = [&](float logit) { total[0] += weight_of(logit - top); };
        if (p.temperature > 0.0f) {
            const float inverse = 1.0f / p.temperature;
            const auto scaled = [&](float logit) { return mul_rn(logit - top, inverse); };
            const uint64_t lowest = lowest_rank(p, row, scratch, scaled);
            const uint32_t* sequence = (const uint32_t*)p.sequence + 2 * uint64_t(index);
            const Philox philox = {{uint32_t(p.seed), uint32_t(p.seed >> 32)}, {position, sequence[0], sequence[1]}};
            const auto rank = [](float score, uint32_t id) { return uint64_t(ascending(score)) << 32 | uint32_t(~id); };
            uint32x4 random = philox.of_tokens(token / 4);
            float top_score = gumbel(random.of_token(token)); // of the largest logit, then within the warp
            best = rank(top_score, token);
            row.each_vector(
                [&](uint32_t first, const typename Row<width>::Vector& logits) {
                    uint32_t numbers[width], least = ~0u;
#pragma unroll
                    for (uint32_t j = 0; j < width; j++) {
                        if (j % 4 == 0) random = philox.of_tokens((first + j) / 4);
                        numbers[j] = random.of_token(first + j);
                        least = min(least, numbers[j]);
                        add(logits[j]);
                    }
                    const auto wins = [&](float logit, uint32_t number) {
                        return !(float(number) > most_random(top_score - scaled(logit)));
                    };
                    if (!wins(largest(logits), least)) return; // nor does any of them
#pragma unroll
                    for (uint32_t j = 0; j < width; j++) {
                        const uint32_t id = first + j;
                        if (!wins(logits[j], numbers[j]) || rank_of(logits[j], id) < lowest) continue;
                        const float score = scaled(logits[j]) + gumbel(numbers[j]);
                        top_score = fmaxf(top_score, score);
                        best = best < rank(score, id) ? rank(score, id) : best;
                    }
                },
                [&] { top_score = group_max(top_score); });
            token = ~uint32_t(block_largest(best, scratch));
        } else {
            row.each([&](uint32_t, float logit) { add(logit); });
        }
        block_sums(total, scratch);
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
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        sample<WIDTH_OF(KEY_X)>(p, scratch);
    else
        sample<1>(p, scratch);
}
