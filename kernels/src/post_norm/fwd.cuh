// Two norms around an addition, for any layout and format of rows: the bits of rmsnorm/fwd.cuh, of scale/scale.cu by 1
// and of rmsnorm/fwd.cuh again. So the normalized branch is rounded before it is added, and the sum before it is
// normalized. A row stays in registers, packed; the second gamma is loaded when the first one has been used.
#pragma once
#include "gamma.cuh"

// Returns the reciprocal root mean square of a row. `scratch` is that of row_sum.
__device__ __forceinline__ float rstd_of(const Vector (&row)[PER_THREAD], float eps, float* scratch) {
    float square = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++)
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) square += row[j][i] * row[j][i];
    return 1.0f / sqrtf(row_sum(square, scratch) / KEY_H + eps);
}

KERNEL(post_norm_fwd_params) {
    __shared__ float scratch[2][VARIANT_THREADS / WARP]; // of the branch, and of the sum
    const uint32_t token = row_of_thread(p.tokens);
    const bool valid = token < p.tokens;
    const bool keeps = KEEPS_DENSE && valid && threadIdx.x % VARIANT_ROW_THREADS == 0;
    const uint64_t row = uint64_t(token) * KEY_H;

    Vector branch[PER_THREAD], x[PER_THREAD], gamma[PER_THREAD];
    load_row(branch, (const KEY_X*)p.branch + row, valid);
    load_row(x, (const KEY_X*)p.x + row, valid);
    load_row(gamma, (const KEY_X*)p.gamma, valid);
    const float rstd = rstd_of(branch, p.eps, scratch[0]);
    if (keeps) ((float*)p.rstd)[token] = rstd;
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        keep_packed(branch[j]);
        float values[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) values[i] = mul_rn(gamma_of(gamma[j][i]), branch[j][i] * rstd);
        const Vector normed = Vector::of(values);
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) values[i] = x[j][i] + normed[i];
        x[j] = Vector::of(values);
        if (valid && inside(j)) ((Vector*)((KEY_X*)p.sum + row))[column_of(j)] = x[j];
    }
#if KEY_NEXT
    load_row(gamma, (const KEY_X*)p.next_gamma, valid);
    const float next_rstd = rstd_of(x, p.eps, scratch[1]);
    if (!TOGETHER && !valid) return;
    if (keeps) ((float*)p.next_rstd)[token] = next_rstd;
    RowOut y((KEY_X*)p.y + row, valid);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        keep_packed(x[j]);
        float values[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) values[i] = gamma_of(gamma[j][i]) * (x[j][i] * next_rstd);
        y.store(j, values);
    }
    y.finish(p, token);
#endif
}
