// The loop of RMSNorm's forward pass over a row, for any layout and format of rows. The row stays in registers, packed,
// between the sum of squares and the scaling; gamma is in flight meanwhile. The sum with the residual branch is rounded
// before it is normalized: the stored values are normalized.
#pragma once
#include "early.cuh"
#include "gamma.cuh"

KERNEL(rmsnorm_fwd_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    begin_early();
    const uint32_t token = row_of_thread(p.tokens);
    const bool valid = token < p.tokens;
    const uint64_t row = uint64_t(token) * KEY_H;

    Vector x[PER_THREAD], gamma[PER_THREAD];
    load_row(x, (const KEY_X*)p.x + row, valid);
#if KEY_RESIDUAL
    Vector delta[PER_THREAD];
    load_row(delta, (const KEY_X*)p.delta + row, valid);
#endif
    load_row(gamma, (const KEY_X*)p.gamma, valid);
    float square = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
#if KEY_RESIDUAL
        float sum[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) sum[i] = x[j][i] + delta[j][i];
        x[j] = Vector::of(sum);
        if (valid && inside(j)) ((Vector*)((KEY_X*)p.sum + row))[column_of(j)] = x[j];
#endif
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) square += x[j][i] * x[j][i];
    }
    const float rstd = 1.0f / sqrtf(row_sum(square, scratch) / KEY_H + p.eps);
    if (!TOGETHER && !valid) return;
    if (KEEPS_DENSE && (!TOGETHER || valid) && threadIdx.x % VARIANT_ROW_THREADS == 0) ((float*)p.rstd)[token] = rstd;
    RowOut y((KEY_X*)p.y + row, valid);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        keep_packed(x[j]);
        float out[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) out[i] = gamma_of(gamma[j][i]) * (x[j][i] * rstd);
        y.store(j, out);
    }
    y.finish(p, token);
}
