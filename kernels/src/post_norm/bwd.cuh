// The loop of both norms' backward passes over the rows of a CTA, for any layout and format of rows: that of
// rmsnorm/bwd.cuh twice. dx is rounded before it goes on to the branch. A CTA takes the `rows` rows of one partial sum;
// each of its row groups takes every ROWS-th of them with its shares of both gradients of gamma in registers, then the
// groups add them up in order: no atomics, no second pass.
#pragma once
#include "gamma.cuh"

// A thread's share of a row of every operand.
struct Loaded {
    Vector dy[PER_THREAD], dresidual[PER_THREAD], sum[PER_THREAD], branch[PER_THREAD];
    float rstd, next_rstd;

    // Loads zeros from row `end` on.
    __device__ __forceinline__ void load(const post_norm_bwd_params& p, uint32_t token, uint32_t end) {
        const bool valid = token < end;
        const uint64_t row = uint64_t(token) * KEY_H;
        load_row(dy, (const KEY_X*)p.dy + row, valid);
        load_row(sum, (const KEY_X*)p.sum + row, valid);
        load_row(dresidual, (const KEY_X*)p.dresidual + row, valid);
        load_row(branch, (const KEY_X*)p.branch + row, valid);
        rstd = valid ? ((const float*)p.rstd)[token] : 0.0f;
        next_rstd = valid ? ((const float*)p.next_rstd)[token] : 0.0f;
    }
};

// A norm, and this thread's share of the gradient of its gamma.
struct Norm {
    Vector gamma[PER_THREAD];
    float dgamma[PER_THREAD][WIDTH];

    __device__ __forceinline__ Norm(const KEY_X* gammas) : dgamma{} { load_row(gamma, gammas, true); }

    // Adds a row's share of the gradient; returns the mean of gamma dy n over the row, with n = x rstd.
    typedef const Vector (&Row)[PER_THREAD];
    __device__ __forceinline__ float add(Row dy, Row x, float rstd, float* scratch) {
        float dot = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            keep_packed(gamma[j]);
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                const float dyn = dy[j][i] * (x[j][i] * rstd);
                dgamma[j][i] += dyn;
                dot += gamma_of(gamma[j][i]) * dyn;
            }
        }
        return row_sum(dot, scratch) / KEY_H;
    }

    // Writes the gradient of vector `j` of a row.
    __device__ __forceinline__ void of(uint32_t j, Vector& dy, Vector& x, float rstd, float mean, float (&out)[WIDTH]) {
        keep_packed(x), keep_packed(dy), keep_packed(gamma[j]);
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) out[i] = rstd * (gamma_of(gamma[j][i]) * dy[i] - (x[i] * rstd) * mean);
    }
};

enum : uint32_t { PART = WIDTH == 1 ? 1 : 4 };
typedef vector<float, PART> Totals[ROWS == 1 ? 1 : KEY_H / PART];

// Adds the groups' shares in shared memory, one after the other.
__device__ __forceinline__ void add_groups(const float (&dgamma)[PER_THREAD][WIDTH], float* partial, Totals& totals) {
    const uint32_t group = threadIdx.x / VARIANT_ROW_THREADS;
#pragma unroll 1
    for (uint32_t turn = 0; turn < ROWS; turn++) {
        if (turn > 0) sync_block();
        if (group != turn) continue;
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            if (!inside(j)) continue;
#pragma unroll
            for (uint32_t first = 0; first < WIDTH; first += PART) {
                const uint32_t place = (column_of(j) * WIDTH + first) / PART;
                float sum[PART];
#pragma unroll
                for (uint32_t i = 0; i < PART; i++)
                    sum[i] = turn > 0 ? totals[place][i] + dgamma[j][first + i] : dgamma[j][first + i];
                if (turn + 1 < ROWS)
                    totals[place] = vector<float, PART>::of(sum);
                else
                    store_vector(partial, place, sum);
            }
        }
    }
}

KERNEL(post_norm_bwd_params) {
    __shared__ float scratch[2][VARIANT_THREADS / WARP]; // of the sum's norm, and of the branch's
    Norm next((const KEY_X*)p.next_gamma), own((const KEY_X*)p.gamma);
    const uint32_t first = blockIdx.x * p.rows, group = threadIdx.x / VARIANT_ROW_THREADS;
    const uint32_t end = min(first + p.rows, p.tokens);
    Loaded ahead;
    if (AHEAD) ahead.load(p, first + group, end);
    for (uint32_t start = first; start < end; start += ROWS) { // equal for the whole CTA
        const uint32_t token = start + group;
        Loaded row;
        if constexpr (AHEAD) {
            row = ahead;
            ahead.load(p, token + ROWS, end);
        } else {
            row.load(p, token, end);
        }
        const float next_mean = next.add(row.dy, row.sum, row.next_rstd, scratch[0]);
        Vector dx[PER_THREAD];
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            float out[WIDTH];
            next.of(j, row.dy[j], row.sum[j], row.next_rstd, next_mean, out);
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) out[i] += row.dresidual[j][i];
            dx[j] = Vector::of(out);
            if (token < end && inside(j)) ((Vector*)((KEY_X*)p.dx + uint64_t(token) * KEY_H))[column_of(j)] = dx[j];
        }
        const float mean = own.add(dx, row.branch, row.rstd, scratch[1]);
        if (!TOGETHER && token >= end) continue;
        RowOut dbranch((KEY_X*)p.dbranch + uint64_t(token) * KEY_H, token < end);
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            float out[WIDTH];
            own.of(j, dx[j], row.branch[j], row.rstd, mean, out);
            dbranch.store(j, out);
        }
        dbranch.finish(p, token);
    }
    __shared__ Totals totals[2];
    const uint64_t partial = uint64_t(blockIdx.x) * KEY_H;
    add_groups(next.dgamma, (float*)p.dnext_gamma_partial + partial, totals[0]);
    add_groups(own.dgamma, (float*)p.dgamma_partial + partial, totals[1]);
}
