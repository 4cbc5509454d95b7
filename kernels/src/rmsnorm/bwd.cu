// RMSNorm backward: dx with the residual stream's gradient added, and partial sums of dgamma, in one pass.
// A CTA takes the `rows` rows of one partial sum; each of its row groups takes every ROWS-th of them with its share of dgamma
// in registers, then the groups reduce through shared memory in a fixed order: no atomics, no second pass.
// Bound: memory. Reads x, dy (and dresidual) once, writes dx once.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "rmsnorm/row.cuh"

enum : uint32_t {
    // Whether the next row is in flight while one is worked on: where registers hold both.
    AHEAD = sizeof(KEY_X) == sizeof(bf16) && PER_THREAD * WIDTH <= 16,
    // A group's dgamma in shared memory: element i of vector j of a lane at (j * WIDTH + i) * STRIDE + lane, where
    // neither lanes nor neighbouring elements share a bank.
    STRIDE = VARIANT_ROW_THREADS + 4,
    // As many of them as fit 36 KiB, below the 48 KiB of static shared memory; groups that share one add one after the other.
    FIT = 9216 / (PER_THREAD * WIDTH * STRIDE),
    SLOTS = ROWS == 1 ? 1 : FIT >= 8 && ROWS >= 8 ? 8 : FIT >= 4 && ROWS >= 4 ? 4 : FIT >= 2 ? 2 : 1,
};

// A thread's share of a row of every operand.
struct Loaded {
    Vector x[PER_THREAD], dy[PER_THREAD];
#if KEY_RESIDUAL
    Vector dresidual[PER_THREAD];
#endif
    float rstd;

    // Zeros from row `end` on.
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
    __shared__ float scratch[2][VARIANT_THREADS / WARP]; // one for a row, the other for the next
    const uint32_t group = threadIdx.x / VARIANT_ROW_THREADS;
    Vector gamma[PER_THREAD];
    load_row(gamma, (const KEY_X*)p.gamma, true);
    float dgamma[PER_THREAD][WIDTH] = {};

    const uint32_t first = blockIdx.x * p.rows;
    const uint32_t end = min(first + p.rows, p.tokens);
    Loaded next;
    if (AHEAD) next.load(p, first + group, end);
    uint32_t stage = 0;
    for (uint32_t start = first; start < end; start += ROWS, stage ^= 1) { // the same for the whole block
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
            keep_packed(gamma[j]);
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                const float dyn = row.dy[j][i] * (row.x[j][i] * rstd);
                dgamma[j][i] += dyn;
                dot += gamma[j][i] * dyn;
            }
        }
        const float mean = row_sum(dot, scratch[stage]) / KEY_H;
        if (token >= end) continue;
        KEY_X* dx = (KEY_X*)p.dx + uint64_t(token) * KEY_H;
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            keep_packed(row.x[j]), keep_packed(row.dy[j]), keep_packed(gamma[j]);
            float out[WIDTH];
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                out[i] = rstd * (gamma[j][i] * row.dy[j][i] - (row.x[j][i] * rstd) * mean);
#if KEY_RESIDUAL
                out[i] += row.dresidual[j][i];
#endif
            }
            if (column_of(j) < COLUMNS) store_vector(dx, column_of(j), out);
        }
    }

    float* partial = (float*)p.dgamma_partial + uint64_t(blockIdx.x) * KEY_H;
    if constexpr (ROWS == 1) {
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++)
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++)
                if (column_of(j) < COLUMNS) partial[column_of(j) * WIDTH + i] = dgamma[j][i];
    } else {
        __shared__ float slots[SLOTS][PER_THREAD * WIDTH * STRIDE];
        for (uint32_t round = 0; round < ROWS / SLOTS; round++) {
            if (group / SLOTS == round) {
                float* slot = slots[group % SLOTS] + threadIdx.x % VARIANT_ROW_THREADS;
#pragma unroll
                for (uint32_t j = 0; j < PER_THREAD; j++)
#pragma unroll
                    for (uint32_t i = 0; i < WIDTH; i++) {
                        float* sum = slot + (j * WIDTH + i) * STRIDE;
                        *sum = round > 0 ? *sum + dgamma[j][i] : dgamma[j][i];
                    }
            }
            sync_block();
        }
        for (uint32_t i = threadIdx.x; i < KEY_H; i += VARIANT_THREADS) {
            const uint32_t column = i / WIDTH, j = column / VARIANT_ROW_THREADS;
            const uint32_t place = (j * WIDTH + i % WIDTH) * STRIDE + column % VARIANT_ROW_THREADS;
            float sum = 0.0f;
#pragma unroll
            for (uint32_t s = 0; s < SLOTS; s++) sum += slots[s][place];
            partial[i] = sum;
        }
    }
}
