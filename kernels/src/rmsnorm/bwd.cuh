// The loop of RMSNorm's backward pass over the rows of a CTA, for any layout and format of rows. A CTA takes the `rows`
// rows of one partial sum; each of its row groups takes every ROWS-th of them and adds up its own dgamma, then the
// groups add them up in a fixed order: no atomics, no second pass.
#pragma once
#include "early.cuh"
#include "gamma.cuh"

// A thread's share of a row of every operand.
struct Loaded {
    Vector x[PER_THREAD], dy[PER_THREAD];
#if KEY_RESIDUAL
    Vector dresidual[PER_THREAD];
#endif
    float rstd;

    // Loads zeros from row `end` on.
    __device__ __forceinline__ void load(const rmsnorm_bwd_params& p, uint32_t token, uint32_t end) {
        const bool valid = token < end;
        const uint64_t row = uint64_t(token) * KEY_H;
        load_row(x, (const KEY_X*)p.x + row, valid);
        load_row(dy, (const KEY_X*)p.dy + row, valid);
#if KEY_RESIDUAL
        load_row(dresidual, (const KEY_X*)p.dresidual + row, valid);
#endif
        rstd = valid ? ((const float*)p.rstd)[token] : 0.0f;
    }
};

KERNEL(rmsnorm_bwd_params) {
    begin_early();
    __shared__ float scratch[2][VARIANT_THREADS / WARP]; // one for a row, the other for the next
    const uint32_t group = threadIdx.x / VARIANT_ROW_THREADS;
    GammaRow gamma((const KEY_X*)p.gamma);
    __shared__ GroupSums sums;
    GroupSum dgamma(sums);

    const uint32_t first = blockIdx.x * p.rows;
    const uint32_t end = min(first + p.rows, p.tokens);
    Loaded next;
    if (AHEAD) next.load(p, first + group, end);
    uint32_t stage = 0;
    for (uint32_t start = first; start < end; start += ROWS, stage ^= 1) { // equal for the whole CTA
        const uint32_t token = start + group;
        Loaded row;
        if constexpr (AHEAD) {
            row = next;
            next.load(p, token + ROWS, end);
        } else {
            row.load(p, token, end);
        }
        const float rstd = row.rstd;
        float dot = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            const Vector& own = gamma.vector(j);
            float dyn[WIDTH];
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                dyn[i] = row.dy[j][i] * (row.x[j][i] * rstd);
                dot += gamma_of(own[i]) * dyn[i];
            }
            dgamma.add(j, dyn);
        }
        const float mean = row_sum(dot, scratch[stage]) / KEY_H;
        if (!TOGETHER && token >= end) continue;
        RowOut dx((KEY_X*)p.dx + uint64_t(token) * KEY_H, token < end);
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            keep_packed(row.x[j]), keep_packed(row.dy[j]);
            const Vector& own = gamma.vector(j);
            float out[WIDTH];
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                out[i] = rstd * (gamma_of(own[i]) * row.dy[j][i] - (row.x[j][i] * rstd) * mean);
#if KEY_RESIDUAL
                out[i] += row.dresidual[j][i];
#endif
            }
            dx.store(j, out);
        }
        dx.finish(p, token);
    }
    dgamma.store((float*)p.dgamma_partial + uint64_t(blockIdx.x) * KEY_H, group);
}
