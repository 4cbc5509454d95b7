// Layout of a head of KEY_D elements over neighboring lanes, a vector each, so the norm reduces over lanes. The heads
// of all tokens are items in a row; their gates lie in rows of other widths, and where those are no whole vectors a
// lane moves its gates one by one.
#pragma once
#include "gate.cuh"
#include "gated_norm.h"
#include "lanes.cuh"

enum : uint32_t {
    WIDTH = KEY_D % WIDTH_OF(KEY_X) == 0 ? WIDTH_OF(KEY_X) : 1,
    COLUMNS = KEY_D / WIDTH, // vectors of a head
    LANES = LANES_OF(COLUMNS),
    GROUPS = VARIANT_THREADS / LANES, // heads per CTA at a time
};
static_assert(COLUMNS <= LANES, "a head has 32 vectors at most");
typedef vector<KEY_X, WIDTH> Vector;

// First elements of a lane's vector: in its head, among heads, and among rows of gates.
struct Place {
    uint64_t head, gates;
    uint32_t column;
    bool whole; // true if its gates are an aligned vector

    template <typename Params>
    __device__ __forceinline__ Place(const Params& p, uint32_t item)
        : column(threadIdx.x % LANES * WIDTH), whole(p.gate_columns % WIDTH == 0 && p.column % WIDTH == 0) {
        const uint32_t token = item / p.heads;
        head = uint64_t(item) * KEY_D + column;
        gates = uint64_t(token) * p.gate_columns + p.column + (item - token * p.heads) * KEY_D + column;
    }

    __device__ __forceinline__ Vector load_gates(const KEY_X* rows) const {
        if (whole) return load_vector<WIDTH>(rows + gates, 0);
        float values[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) values[i] = to_float(rows[gates + i]);
        return Vector::of(values);
    }

    __device__ __forceinline__ void store_gates(KEY_X* rows, const float (&values)[WIDTH]) const {
        if (whole) {
            store_vector(rows + gates, 0, values);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) rows[gates + i] = from_float<KEY_X>(values[i]);
        }
    }
};

// 1 over the root mean square of a head; all its lanes call it.
__device__ __forceinline__ float rstd_of(const Vector& x, float eps) {
    float square = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < WIDTH; i++) square += x[i] * x[i];
    return 1.0f / sqrtf(group_sum<LANES>(square) / KEY_D + eps);
}
