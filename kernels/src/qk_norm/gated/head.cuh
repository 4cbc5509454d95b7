// Layout of a head of KEY_D elements over neighboring lanes, two vectors each: a lane has either vectors that rotate
// with each other, or two of those behind `rotary`, so the norm reduces over lanes and the rotation stays within one.
#pragma once
#include "gamma.cuh"
#include "lanes.cuh"
#include "qk_norm_gated.h"
#include "vector.cuh"

enum : uint32_t {
    HALF = KEY_ROTARY / 2,
    WIDTH = HALF % WIDTH_OF(KEY_X) == 0 && KEY_D % (2 * WIDTH_OF(KEY_X)) == 0 ? WIDTH_OF(KEY_X) : 1,
    COLUMNS = KEY_D / 2 / WIDTH, // pairs of vectors of a head
    TURNED = HALF / WIDTH,       // pairs that rotate
    LANES = LANES_OF(COLUMNS),
    GROUPS = VARIANT_THREADS / LANES, // heads per CTA at a time
};
static_assert(COLUMNS <= LANES, "a head has 32 pairs of vectors at most");
typedef vector<KEY_X, WIDTH> Vector;

// The lane's column of pairs, and the vectors of a pair.
__device__ __forceinline__ uint32_t lane_column() { return threadIdx.x % LANES; }
__device__ __forceinline__ uint32_t first_of(uint32_t column) { return column < TURNED ? column : TURNED + column; }
__device__ __forceinline__ uint32_t second_of(uint32_t column) {
    return first_of(column) + (column < TURNED ? TURNED : COLUMNS - TURNED);
}

// The lane's elements of a head; zeros if not `valid`.
struct Pair {
    Vector a, b;

    __device__ __forceinline__ void load(const KEY_X* head, bool valid) {
        a = {}, b = {};
        if (valid) {
            a = load_vector<WIDTH>(head, first_of(lane_column()));
            b = load_vector<WIDTH>(head, second_of(lane_column()));
        }
    }

    // 1 over the root mean square of the head; all its lanes call it.
    __device__ __forceinline__ float rstd(float eps) const {
        float square = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) square += a[i] * a[i] + b[i] * b[i];
        return 1.0f / sqrtf(group_sum<LANES>(square) / KEY_D + eps);
    }
};

__device__ __forceinline__ void store_pair(KEY_X* head, const float (&a)[WIDTH], const float (&b)[WIDTH]) {
    store_vector(head, first_of(lane_column()), a);
    store_vector(head, second_of(lane_column()), b);
}
__device__ __forceinline__ void store_pair(KEY_X* head, const Pair& pair) {
    ((Vector*)head)[first_of(lane_column())] = pair.a;
    ((Vector*)head)[second_of(lane_column())] = pair.b;
}

// The cosines and sines that the lane rotates by: no angle if its elements do not rotate.
struct Angles {
    float cos[WIDTH], sin[WIDTH];

    template <typename Params> __device__ __forceinline__ void load(const Params& p, uint32_t token, bool valid) {
        constexpr uint32_t four = WIDTH < 4 ? 1 : 4;
        const bool turned = valid && lane_column() < TURNED;
        const uint64_t position = turned ? ((const uint32_t*)p.position)[token] : 0;
        const uint64_t start = position * HALF + lane_column() * WIDTH;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i += four) {
            vector<float, four> c, s;
            if (turned) {
                c = load_vector<four>((const float*)p.cos + start + i, 0);
                s = load_vector<four>((const float*)p.sin + start + i, 0);
            }
#pragma unroll
            for (uint32_t j = 0; j < four; j++) cos[i + j] = turned ? c[j] : 1.0f, sin[i + j] = turned ? s[j] : 0.0f;
        }
    }
};

// Heads of rows: queries, keys and values, a gate behind each query where rows are packed.
struct Heads {
    uint32_t queries, keys;

    __device__ __forceinline__ uint32_t all() const { return queries + 2 * keys; }
    __device__ __forceinline__ bool is_value(uint32_t head) const { return head >= queries + keys; }
    // First element of a head of a token, packed and not.
    __device__ __forceinline__ uint64_t packed(uint32_t token, uint32_t head) const {
        return (uint64_t(token) * 2 * (queries + keys) + (head < queries ? 2 * head : queries + head)) * KEY_D;
    }
    __device__ __forceinline__ uint64_t plain(uint32_t token, uint32_t head) const {
        return (uint64_t(token) * all() + head) * KEY_D;
    }
    // Its gamma, behind that of queries.
    __device__ __forceinline__ uint32_t gamma(uint32_t head) const { return head < queries ? 0 : KEY_D; }
};
