// The gradient of a row through its norm, where the row lies, as row.cuh has it.
#pragma once
#include "int8/row.cuh"

typedef vector<KEY_X, WIDTH> Vector;
typedef Vector Packed[ROUNDS][VECTORS];

// A thread's share of a row of an operand; zeros if not `valid`.
__device__ __forceinline__ void load_share(Packed& packed, const KEY_X* row, bool valid) {
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            packed[round][j] = {};
            if (valid && inside(round, j)) packed[round][j] = load_vector<WIDTH>(row, column_of(round, j) / WIDTH);
        }
}

// A thread's share of a row of every operand.
struct Gradient {
    Packed x, dy;
#if KEY_RESIDUAL
    Packed dresidual;
#endif
    float rstd;

    template <typename Params> __device__ __forceinline__ void load(const Params& p, uint32_t token, bool valid) {
        const uint64_t row = uint64_t(token) * ROW;
        load_share(x, (const KEY_X*)p.x + row, valid);
        load_share(dy, (const KEY_X*)p.dy + row, valid);
#if KEY_RESIDUAL
        load_share(dresidual, (const KEY_X*)p.dresidual + row, valid);
#endif
        rstd = valid ? ((const float*)p.rstd)[token] : 0.0f;
    }

    // dy n, with n = x rstd: what gamma's gradient is a sum of.
    __device__ __forceinline__ float product(uint32_t round, uint32_t j, uint32_t i) const {
        return dy[round][j][i] * (x[round][j][i] * rstd);
    }

    // dx of the row, with `mean` of gamma dy n over it: stores it, and then the row quantised. All threads of the CTA call it.
    template <typename Params>
    __device__ __forceinline__ void store(const Params& p, uint32_t token, bool valid, Packed& gamma, float mean, uint32_t* scratch) {
        const uint64_t row = uint64_t(token) * ROW;
        Share share;
#pragma unroll
        for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
            for (uint32_t j = 0; j < VECTORS; j++) {
                keep_packed(x[round][j]), keep_packed(dy[round][j]), keep_packed(gamma[round][j]);
                float dx[WIDTH];
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++) {
                    dx[i] = rstd * (gamma[round][j][i] * dy[round][j][i] - (x[round][j][i] * rstd) * mean);
#if KEY_RESIDUAL
                    dx[i] += dresidual[round][j][i];
#endif
                }
                store_rounded(share.v[round][j], dx, (KEY_X*)p.dx + row, column_of(round, j), valid && inside(round, j));
            }
        store_quantized(share, (uint8_t*)p.q + row, (float*)p.scale + token, valid, scratch);
    }
};
