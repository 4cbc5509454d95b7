// A row that is normalised where it lies, as row.cuh has it: loaded, added to its residual branch, and its scale found.
// The sum with the branch is rounded before it is normalized, as in rmsnorm/fwd.cu, and stored.
#pragma once
#include "int8/row.cuh"

typedef vector<KEY_X, WIDTH> Vector;

// A thread's share of the row, packed, and 1 over the root mean square of the row.
struct Normed {
    Vector x[ROUNDS][VECTORS], gamma[ROUNDS][VECTORS];
    float rstd;

    // Normalised values of a vector.
    __device__ __forceinline__ void values(float (&y)[WIDTH], uint32_t round, uint32_t j) {
        keep_packed(x[round][j]);
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) y[i] = gamma[round][j][i] * (x[round][j][i] * rstd);
    }
};

// All threads of the CTA call it. `row` is the row's first element; `scratch` holds a word a warp.
template <typename Params>
__device__ __forceinline__ void normalise(Normed& normed, const Params& p, uint64_t row, bool valid, float* scratch) {
#if KEY_RESIDUAL
    Vector delta[ROUNDS][VECTORS];
#endif
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            const uint32_t at = column_of(round, j) / WIDTH;
            const bool there = valid && inside(round, j);
            normed.x[round][j] = normed.gamma[round][j] = {};
            if (there) normed.x[round][j] = load_vector<WIDTH>((const KEY_X*)p.x + row, at);
#if KEY_RESIDUAL
            delta[round][j] = {};
            if (there) delta[round][j] = load_vector<WIDTH>((const KEY_X*)p.delta + row, at);
#endif
            if (there) normed.gamma[round][j] = load_vector<WIDTH>((const KEY_X*)p.gamma, at);
        }
    float square = 0.0f;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            Vector& own = normed.x[round][j];
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
    normed.rstd = 1.0f / sqrtf(row_sum(square, scratch) / ROW + p.eps);
}
