// The loop of RMSNorm's backward pass over a row for a frozen gamma, for any layout and format of rows. A row stays in
// registers, packed, between the sum over it and its gradient; the residual's is in flight meanwhile.
#pragma once
#include "gamma.cuh"

KERNEL(rmsnorm_dgrad_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint32_t token = row_of_thread(p.tokens);
    const bool valid = token < p.tokens;
    const uint64_t row = uint64_t(token) * KEY_H;

    Vector x[PER_THREAD], dy[PER_THREAD], gamma[PER_THREAD];
    load_row(x, (const KEY_X*)p.x + row, valid);
    load_row(dy, (const KEY_X*)p.dy + row, valid);
    load_row(gamma, (const KEY_X*)p.gamma, valid);
#if KEY_RESIDUAL
    Vector dresidual[PER_THREAD];
    load_row(dresidual, (const KEY_X*)p.dresidual + row, valid);
#endif
    const float rstd = valid ? ((const float*)p.rstd)[token] : 0.0f;
    float dot = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++)
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) dot += gamma_of(gamma[j][i]) * (dy[j][i] * (x[j][i] * rstd));
    const float mean = row_sum(dot, scratch) / KEY_H;
    if (!TOGETHER && !valid) return;
    RowOut dx((KEY_X*)p.dx + row, valid);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        keep_packed(x[j]), keep_packed(dy[j]), keep_packed(gamma[j]);
        float out[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            out[i] = rstd * (gamma_of(gamma[j][i]) * dy[j][i] - (x[j][i] * rstd) * mean);
#if KEY_RESIDUAL
            out[i] += dresidual[j][i];
#endif
        }
        dx.store(j, out);
    }
    dx.finish(p, token);
}
