// Layout of a head of KEY_D elements over neighboring lanes: each has a vector of the head's first half and the vector
// of the second half that it rotates with, so the norm reduces over lanes and the rotation stays within one.
#pragma once
#include "gamma.cuh"
#include "lanes.cuh"
#include "vector.cuh"

enum : uint32_t {
    WIDTH = WIDTH_OF(KEY_X),
    HALF = KEY_D / 2,       // a multiple of WIDTH: head_dim is one of 16
    COLUMNS = HALF / WIDTH, // vectors in half a head
    LANES = LANES_OF(COLUMNS),
    GROUPS = VARIANT_THREADS / LANES, // heads per CTA at a time
};
static_assert(HALF % WIDTH == 0 && COLUMNS <= LANES, "head_dim is a multiple of 16 up to 128, or 256");
typedef vector<KEY_X, WIDTH> Vector;

// The lane's elements of a head; zeros if not `valid`.
struct Pair {
    Vector a, b;

    __device__ __forceinline__ void load(const KEY_X* head, uint32_t column, bool valid) {
        a = {}, b = {};
        if (valid) {
            a = load_vector<WIDTH>(head, column);
            b = load_vector<WIDTH>(head + HALF, column);
        }
    }

    __device__ __forceinline__ float square_sum() const {
        float sum = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) sum += a[i] * a[i] + b[i] * b[i];
        return sum;
    }
};

// The cosines and sines that the lane rotates by; zeros if not `valid`.
struct Angles {
    float cos[WIDTH], sin[WIDTH];

    __device__ __forceinline__ void load(address cosines, address sines, uint32_t position, uint32_t column,
                                         bool valid) {
        const uint64_t start = uint64_t(position) * HALF + column * WIDTH;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i += 4) {
            vector<float, 4> c = {}, s = {};
            if (valid) {
                c = load_vector<4>((const float*)cosines + start + i, 0);
                s = load_vector<4>((const float*)sines + start + i, 0);
            }
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) cos[i + j] = c[j], sin[i + j] = s[j];
        }
    }
};

__device__ __forceinline__ float rstd_of(float square_sum, float eps) {
    return 1.0f / sqrtf(square_sum / KEY_D + eps);
}
