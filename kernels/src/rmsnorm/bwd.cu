// RMSNorm backward: dx with the residual stream's gradient added, and partial sums of dgamma, in one pass, see bwd.cuh.
// The next row is in flight during the work on one, if registers hold both.
// Bound: memory. Reads x, dy (and dresidual) once, writes dx once.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "rmsnorm.h"
#include "rmsnorm/row.cuh"

enum : uint32_t {
    AHEAD = sizeof(KEY_X) == sizeof(bf16) && PER_THREAD * WIDTH <= 16,
    // A group's dgamma in shared memory: element i of vector j of a lane at (j * WIDTH + i) * STRIDE + lane, so that
    // neither lanes nor neighboring elements share a bank.
    STRIDE = VARIANT_ROW_THREADS + 4,
    // As many groups as fit 36 KiB, below the 48 KiB of static shared memory; groups that share one add in order.
    FIT = 9216 / (PER_THREAD * WIDTH * STRIDE),
    SLOTS = ROWS == 1 ? 1 : FIT >= 8 && ROWS >= 8 ? 8 : FIT >= 4 && ROWS >= 4 ? 4 : FIT >= 2 ? 2 : 1,
};

typedef float GroupSums[SLOTS][PER_THREAD * WIDTH * STRIDE];

// A thread's share of gamma, in registers.
struct GammaRow {
    Vector own[PER_THREAD];

    __device__ __forceinline__ GammaRow(const KEY_X* gamma) { load_row(own, gamma, true); }

    __device__ __forceinline__ const Vector& vector(uint32_t j) {
        keep_packed(own[j]);
        return own[j];
    }
};

// A group's dgamma, in registers until its rows are through.
struct GroupSum {
    GroupSums& slots;
    float own[PER_THREAD][WIDTH] = {};

    __device__ __forceinline__ GroupSum(GroupSums& slots) : slots(slots) {}

    // Adds a row's vector `j`.
    __device__ __forceinline__ void add(uint32_t j, const float (&values)[WIDTH]) {
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) own[j][i] += values[i];
    }

    // Adds up the groups through shared memory. All threads of the CTA call it.
    __device__ __forceinline__ void store(float* partial, uint32_t group) const {
        if constexpr (ROWS == 1) {
#pragma unroll
            for (uint32_t j = 0; j < PER_THREAD; j++)
#pragma unroll
                for (uint32_t i = 0; i < WIDTH; i++)
                    if (inside(j)) partial[column_of(j) * WIDTH + i] = own[j][i];
        } else {
            for (uint32_t round = 0; round < ROWS / SLOTS; round++) {
                if (group / SLOTS == round) {
                    float* slot = slots[group % SLOTS] + threadIdx.x % VARIANT_ROW_THREADS;
#pragma unroll
                    for (uint32_t j = 0; j < PER_THREAD; j++)
#pragma unroll
                        for (uint32_t i = 0; i < WIDTH; i++) {
                            float* sum = slot + (j * WIDTH + i) * STRIDE;
                            *sum = round > 0 ? *sum + own[j][i] : own[j][i];
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
};

#include "rmsnorm/bwd.cuh"
