// RMSNorm backward with quantization: the results of rmsnorm/bwd.cu, and int8/quantize.cu of its dx for the gradient of
// the GEMM below. Bound: memory. Reads x, dy (and dresidual) once, writes dx and one byte a value. Sources: Zhang
// and Sennrich, "Root Mean Square Layer Normalization", 2019; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_H };
#include "int8/row.cuh"
#include "rmsnorm.h"

enum : bool { AHEAD = false }; // registers do not hold two rows

// A thread's share of gamma, loaded for each use: registers hold no more beside a row that is quantized.
struct GammaRow {
    const KEY_X* gamma;

    __device__ __forceinline__ GammaRow(const KEY_X* gamma) : gamma(gamma) {}

    __device__ __forceinline__ Vector vector(uint32_t j) const {
        return inside(j) ? load_vector<WIDTH>(gamma, opaque(column_of(j))) : Vector{};
    }
};

// The groups' dgamma: registers do not hold it beside a row that is quantized. Four columns of a thread lie beside
// those of its neighbors, so no bank has two of them.
enum : uint32_t { FOURS = PER_THREAD * WIDTH / 4 };
typedef float4_t GroupSums[FOURS][VARIANT_THREADS];

// A group's dgamma, in shared memory from the start.
struct GroupSum {
    GroupSums& sums;

    __device__ __forceinline__ GroupSum(GroupSums& sums) : sums(sums) {
#pragma unroll
        for (uint32_t i = 0; i < FOURS; i++) sums[i][threadIdx.x] = {};
    }

    // Adds a row's vector `j`.
    __device__ __forceinline__ void add(uint32_t j, const float (&values)[WIDTH]) {
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            float4_t& own = sums[2 * j + half][threadIdx.x];
            float4_t sum = own;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) sum.v[i] += values[4 * half + i];
            own = sum;
        }
    }

    // Adds up the groups. All threads of the CTA call it.
    __device__ __forceinline__ void store(float* partial, uint32_t) const {
        sync_block();
        for (uint32_t four = threadIdx.x; four < ROW / 4; four += VARIANT_THREADS) {
            const uint32_t vector = four / 2, segment = vector / (SEGMENT / WIDTH), place = vector % (SEGMENT / WIDTH);
            static_assert(PER_THREAD == VECTORS, "a thread has vectors of one segment");
            const uint32_t j = place / 4, thread = segment * 4 + place % 4; // the inverse of column_of
            float4_t sum = {};
#pragma unroll
            for (uint32_t group = 0; group < ROWS; group++) {
                const float4_t other = sums[2 * j + four % 2][group * VARIANT_ROW_THREADS + thread];
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) sum.v[i] += other.v[i];
            }
            store4(partial + 4 * four, sum);
        }
    }
};

#include "rmsnorm/bwd.cuh"
