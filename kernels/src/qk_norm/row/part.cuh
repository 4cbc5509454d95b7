// Layout of a token's queries, or of its keys, over a CTA: a thread has pairs of vectors that rotate with each other,
// as in head.cuh, of any heads, kept packed in registers from the one load to the last use.
#pragma once
#include "qk_norm/head.cuh"
#include "qk_norm_row.h"

enum : uint32_t { PER_THREAD = (KEY_HEADS * COLUMNS + VARIANT_THREADS - 1) / VARIANT_THREADS };

// The heads of a token that are normalized together: blockIdx.y 0 has the queries, 1 the keys.
struct Part {
    uint32_t before, heads, all; // heads in front of it, of it, and of queries and keys

    __device__ __forceinline__ Part(uint32_t key_heads)
        : before(blockIdx.y ? uint32_t(KEY_HEADS) : 0), heads(blockIdx.y ? key_heads : uint32_t(KEY_HEADS)), all(KEY_HEADS + key_heads) {}

    // Returns the first element of the part, in rows of `row_heads` heads.
    template <typename T> __device__ __forceinline__ T* of(address rows, uint64_t row, uint32_t row_heads) const {
        return (T*)rows + (row * row_heads + before) * KEY_D;
    }

    // The thread's pair `j` is pair j * VARIANT_THREADS + threadIdx.x of the part, if that exists.
    __device__ __forceinline__ bool has(uint32_t j) const { return j * VARIANT_THREADS + threadIdx.x < heads * COLUMNS; }
};

__device__ __forceinline__ uint32_t column_of(uint32_t j) { return (j * VARIANT_THREADS + threadIdx.x) % COLUMNS; }

// Returns the first element of the head of the thread's pair `j`.
template <typename T> __device__ __forceinline__ T* head_of(T* part, uint32_t j) {
    return part + (j * VARIANT_THREADS + threadIdx.x) / COLUMNS * KEY_D;
}

// Loads the thread's pairs; zeros beyond the part.
__device__ __forceinline__ void load_pairs(Pair (&out)[PER_THREAD], const Part& part, const KEY_X* elements) {
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) out[j].load(head_of(elements, j), column_of(j), part.has(j));
}

// Stores the halves of the thread's pair `j`.
__device__ __forceinline__ void store_pair(KEY_X* part, uint32_t j, const float (&a)[WIDTH], const float (&b)[WIDTH]) {
    store_vector(head_of(part, j), column_of(j), a);
    store_vector(head_of(part, j) + HALF, column_of(j), b);
}

// The gradient of a token's part before its rotation, and what its norm needs of it. All threads of the CTA make it.
struct Gradient {
    float a[PER_THREAD][WIDTH], b[PER_THREAD][WIDTH];
    float rstd, mean;

    // `scratch` may be reused after two calls of sync_block.
    template <typename Params>
    __device__ __forceinline__ Gradient(const Params& p, const Part& part, uint32_t token, const Pair (&x)[PER_THREAD], const Pair (&turned)[PER_THREAD],
                                        const Pair (&gamma)[PER_THREAD], float (&scratch)[2][VARIANT_THREADS / WARP]) {
        const uint32_t position = ((const uint32_t*)p.position)[token];
        float square = 0.0f, dot = 0.0f;
#pragma unroll
        for (uint32_t j = 0; j < PER_THREAD; j++) {
            Angles turn;
            turn.load(p.cos, p.sin, position, column_of(j), part.has(j));
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) {
                a[j][i] = turned[j].a[i] * turn.cos[i] + turned[j].b[i] * turn.sin[i];
                b[j][i] = turned[j].b[i] * turn.cos[i] - turned[j].a[i] * turn.sin[i];
                dot += gamma_of(gamma[j].a[i]) * a[j][i] * x[j].a[i] + gamma_of(gamma[j].b[i]) * b[j][i] * x[j].b[i];
            }
            square += x[j].square_sum();
        }
        const uint32_t width = part.heads * KEY_D;
        rstd = 1.0f / sqrtf(block_sum<VARIANT_THREADS>(square, scratch[0]) / width + p.eps);
        mean = block_sum<VARIANT_THREADS>(dot, scratch[1]) * rstd / width;
    }

    // Stores the gradient of the thread's pair `j`.
    __device__ __forceinline__ void store(KEY_X* dx, uint32_t j, const Pair& x, const Pair& gamma) const {
        float out_a[WIDTH], out_b[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            out_a[i] = rstd * (gamma_of(gamma.a[i]) * a[j][i] - x.a[i] * rstd * mean);
            out_b[i] = rstd * (gamma_of(gamma.b[i]) * b[j][i] - x.b[i] * rstd * mean);
        }
        store_pair(dx, j, out_a, out_b);
    }
};
