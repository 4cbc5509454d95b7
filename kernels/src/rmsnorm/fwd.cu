// RMSNorm forward, the residual addition fused in: one pass over memory.
// The row stays in registers, packed, between the sum of squares and the scaling; gamma is in flight meanwhile. The sum with
// the residual branch is rounded before it is normalized: what is normalized is what is stored.
// Bound: memory. Reads x (and delta) once, writes y (and the sum) once.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "rmsnorm/row.cuh"

KERNEL(rmsnorm_fwd_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const uint32_t token = blockIdx.x * ROWS + threadIdx.x / VARIANT_ROW_THREADS;
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
        if (valid && column_of(j) < COLUMNS) ((Vector*)((KEY_X*)p.sum + row))[column_of(j)] = x[j];
#endif
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) square += x[j][i] * x[j][i];
    }
    const float rstd = 1.0f / sqrtf(row_sum(square, scratch) / KEY_H + p.eps);
    if (!valid) return;
    if (threadIdx.x % VARIANT_ROW_THREADS == 0) ((float*)p.rstd)[token] = rstd;
    KEY_X* y = (KEY_X*)p.y + row;
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        keep_packed(x[j]);
        float out[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) out[i] = gamma[j][i] * (x[j][i] * rstd);
        if (column_of(j) < COLUMNS) store_vector(y, column_of(j), out);
    }
}
