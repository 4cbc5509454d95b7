// Runs of tokens in a vector of channels: a thread slides over a run with the taps and the tokens before in registers,
// so that x is read once but for the few tokens in front of a run, which another CTA has just brought into L2.
#pragma once
#include "conv.h"
#include "gate.cuh"

enum : uint32_t {
    TAPS = CONV_TAPS,
    BEFORE = TAPS - 1, // tokens that a convolution reads before its own
    STEP = 4,          // tokens whose loads are in flight together
};

// Weights of a vector of channels, as they lie in memory.
template <uint32_t width> struct Taps {
    vector<KEY_X, width> packed[TAPS];

    __device__ __forceinline__ void load(const KEY_X* weight, uint32_t column) {
#pragma unroll
        for (uint32_t i = 0; i < TAPS; i++) packed[i] = load_vector<width>(weight, column * TAPS + i);
    }
    // The weight of the token `before` another.
    __device__ __forceinline__ float operator()(uint32_t channel, uint32_t before) const {
        const uint32_t i = channel * TAPS + BEFORE - before;
        return packed[i / width][i % width];
    }
};

// Tokens of a vector of channels: BEFORE tokens, then those of a step.
template <uint32_t width> struct Window {
    const KEY_X* x; // the vector in the first row
    uint32_t row_columns;
    vector<KEY_X, width> tokens[BEFORE + STEP];

    __device__ __forceinline__ vector<KEY_X, width> load(uint32_t token) const {
        return load_vector<width>(x + uint64_t(token) * row_columns, 0);
    }
    // Loads the tokens before `first`.
    __device__ __forceinline__ void begin(uint32_t first) {
#pragma unroll
        for (uint32_t i = 0; i < BEFORE; i++) {
            tokens[i] = {};
            if (first + i >= BEFORE) tokens[i] = load(first + i - BEFORE);
        }
    }
    // Loads a step; zeros from `end` on.
    __device__ __forceinline__ void fill(uint32_t first, uint32_t end) {
#pragma unroll
        for (uint32_t i = 0; i < STEP; i++) {
            tokens[BEFORE + i] = {};
            if (first + i < end) tokens[BEFORE + i] = load(first + i);
        }
    }
    __device__ __forceinline__ void advance() {
#pragma unroll
        for (uint32_t i = 0; i < BEFORE; i++) tokens[i] = tokens[STEP + i];
    }
    // The convolution at token `i` of the step, rounded; `before` is equal for a warp.
    __device__ __forceinline__ void convolve(const Taps<width>& taps, uint32_t i, uint32_t before,
                                             float (&sum)[width]) const {
#pragma unroll
        for (uint32_t j = 0; j < width; j++) sum[j] = 0.0f;
#pragma unroll
        for (uint32_t tap = 0; tap < TAPS; tap++) {
            const uint32_t back = BEFORE - tap;
            if (back > before) continue;
#pragma unroll
            for (uint32_t j = 0; j < width; j++) sum[j] += taps(j, back) * tokens[BEFORE + i - back][j];
        }
#pragma unroll
        for (uint32_t j = 0; j < width; j++) sum[j] = round_to<KEY_X>(sum[j]);
    }
};

// Tokens before `token` that its convolution reads.
__device__ __forceinline__ uint32_t before_of(address position, uint32_t token) {
    return min(min(uint32_t(BEFORE), token), ((const uint32_t*)position)[token]);
}

// The thread's vector of channels, and the run of its CTA: neighboring CTAs take the channels of one run.
struct Place {
    uint32_t column, run;
};

template <uint32_t width> __device__ __forceinline__ Place place_of(uint32_t channels) {
    const uint32_t segments = (channels / width + VARIANT_THREADS - 1) / VARIANT_THREADS;
    return {blockIdx.x % segments * VARIANT_THREADS + threadIdx.x, blockIdx.x / segments};
}
