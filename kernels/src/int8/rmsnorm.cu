// RMSNorm to rotated int8, the residual addition fused in: what a frozen model's products read, and nothing else, is written.
// One pass over memory: a row stays in registers from its load to the store of its values. The sum with the residual branch is
// rounded before it is normalized, as in rmsnorm/fwd.cu; what is normalized is rounded once, to int8.
// Bound: memory. Reads x (and delta) once, writes one byte a value (and the sum).
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; quantize.cu.
enum : unsigned { ROW = KEY_H };
#include "int8/row.cuh"

typedef vector<KEY_X, WIDTH> Vector;

KERNEL(int8_rmsnorm_params) {
    __shared__ float sums[VARIANT_THREADS / WARP];
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t from_last = row_from_last(), token = p.tokens - 1 - from_last;
    const bool valid = from_last < p.tokens;
    const uint64_t row = uint64_t(token) * ROW;

    Vector x[ROUNDS][VECTORS], gamma[ROUNDS][VECTORS];
#if KEY_RESIDUAL
    Vector delta[ROUNDS][VECTORS];
#endif
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            const uint32_t at = column_of(round, j) / WIDTH;
            const bool there = valid && inside(round, j);
            x[round][j] = gamma[round][j] = {};
            if (there) x[round][j] = load_vector<WIDTH>((const KEY_X*)p.x + row, at);
#if KEY_RESIDUAL
            delta[round][j] = {};
            if (there) delta[round][j] = load_vector<WIDTH>((const KEY_X*)p.delta + row, at);
#endif
            if (there) gamma[round][j] = load_vector<WIDTH>((const KEY_X*)p.gamma, at);
        }
    float square = 0.0f;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            Vector& own = x[round][j];
#if KEY_RESIDUAL
            float sum[WIDTH];
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) sum[i] = own[i] + delta[round][j][i];
            own = Vector::of(sum);
            if (valid && inside(round, j)) reinterpret_cast<Vector*>((KEY_X*)p.sum + row)[column_of(round, j) / WIDTH] = own;
#endif
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) square += own[i] * own[i];
        }
    const float rstd = 1.0f / sqrtf(row_sum(square, sums) / ROW + p.eps);
    Share share;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            keep_packed(x[round][j]);
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) share.v[round][j][i] = gamma[round][j][i] * (x[round][j][i] * rstd);
        }
    store_quantized(share, (uint8_t*)p.q + row, (float*)p.scale + token, valid, scratch);
}
