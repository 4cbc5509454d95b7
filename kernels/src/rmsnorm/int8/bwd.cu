// RMSNorm backward with quantization: the results of rmsnorm/bwd.cu, and int8/quantize.cu of its dx for the gradient of
// the GEMM below. Bound: memory. Reads x, dy (and dresidual) once, writes dx and one byte a value. Sources: Zhang
// and Sennrich, "Root Mean Square Layer Normalization", 2019; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_H };
#include "int8/row.cuh"
#include "rmsnorm.h"

enum : bool { AHEAD = false }; // registers do not hold two rows

typedef float4_t GroupSums[ROWS == 1 ? 1 : ROW / 4];

// Adds the groups' shares in shared memory, one after the other.
__device__ __forceinline__ void add_groups(const float (&dgamma)[PER_THREAD][WIDTH], uint32_t group, float* partial, GroupSums& total) {
#pragma unroll 1
    for (uint32_t turn = 0; turn < ROWS; turn++) {
        if (turn > 0) sync_block();
        if (group != turn) continue;
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            if (!inside(j)) continue;
#pragma unroll
            for (uint32_t half = 0; half < WIDTH; half += 4) {
                const uint32_t column = column_of(j) * WIDTH + half;
                float4_t sum = turn > 0 ? total[column / 4] : float4_t{};
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) sum.v[i] += dgamma[j][half + i];
                if (turn + 1 < ROWS)
                    total[column / 4] = sum;
                else
                    store4(partial + column, sum);
            }
        }
    }
}

#include "rmsnorm/bwd.cuh"
