// Draws a token of each row: the largest of logit / temperature + Gumbel noise, which is a draw from the softmax, among the
// tokens that top-k and top-p leave. A CTA takes a row and reads it two to four times, and once for each digit of a
// selection. All that is summed is an integer and every function is a polynomial: any GPU and the host agree bit for bit.
// Bound: memory, the row from L2 but for the first time; with noise the instructions of Philox and two logarithms.
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
    row.each([&](uint32_t id, float logit) {
        const uint64_t rank = is_finite(logit) ? rank_of(logit, id) : NOT_FINITE;
        best = best < rank ? rank : best;
    });
    best = block_largest(best, scratch);
    uint32_t token = ~uint32_t(best);
    float log_prob = 0.0f, lse = 0.0f;
    if (best == NOT_FINITE) {
        token = NO_TOKEN;
    } else {
        const float top = to_float(row.logits[token]);
        uint64_t total[1] = {};
        row.each([&](uint32_t, float logit) { total[0] += weight_of(logit - top); });
        block_sums(total, scratch);
        if (p.temperature > 0.0f) {
            const float inverse = 1.0f / p.temperature;
            const auto scaled = [&](float logit) { return mul_rn(logit - top, inverse); };
            const uint64_t lowest = lowest_rank(p, row, scratch, scaled);
            const uint32_t* sequence = (const uint32_t*)p.sequence + 2 * uint64_t(index);
            const Philox philox = {{uint32_t(p.seed), uint32_t(p.seed >> 32)}, {position, sequence[0], sequence[1]}};
            uint32x4 random;
            best = 0;
            row.each([&](uint32_t id, float logit) {
                if (id % 4 == 0 || width == 1) random = philox.of_tokens(id / 4);
                if (rank_of(logit, id) < lowest) return;
                const uint32_t low = id % 2 ? random.v[1] : random.v[0], high = id % 2 ? random.v[3] : random.v[2];
                const float score = scaled(logit) + gumbel(id % 4 < 2 ? low : high);
                const uint64_t rank = uint64_t(ascending(score)) << 32 | uint32_t(~id);
                best = best < rank ? rank : best;
            });
            token = ~uint32_t(block_largest(best, scratch));
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
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        sample<WIDTH_OF(KEY_X)>(p, scratch);
    else
        sample<1>(p, scratch);
}
