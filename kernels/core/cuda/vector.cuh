// What memory-bound kernels share: 16-byte vectors, kept packed until they are used, and approximate transcendentals as
// the single instructions they are.
#pragma once
#include "device.cuh"

// Elements of T in 16 bytes.
#define WIDTH_OF(T) uint32_t(16 / sizeof(T))

// `n` neighboring elements of T, moved by one load or store: as many as 16 bytes hold, or one where rows are not
// aligned to 16 bytes.
template <typename T, uint32_t n> struct vector;

template <typename T> struct vector<T, 1> {
    T value;
    __device__ __forceinline__ float operator[](uint32_t) const { return to_float(value); }
    static __device__ __forceinline__ vector of(const float (&v)[1]) { return {from_float<T>(v[0])}; }
};

template <> struct alignas(16) vector<float, 4> {
    float v[4];
    __device__ __forceinline__ float operator[](uint32_t i) const { return v[i]; }
    static __device__ __forceinline__ vector of(const float (&v)[4]) { return {v[0], v[1], v[2], v[3]}; }
};

template <> struct alignas(16) vector<bf16, 8> {
    uint32_t pairs[4];
    __device__ __forceinline__ float operator[](uint32_t i) const { return unpack_bf16x2(pairs[i / 2], i); }
    static __device__ __forceinline__ vector of(const float (&v)[8]) {
        vector result;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) result.pairs[i] = pack_bf16x2(v[2 * i], v[2 * i + 1]);
        return result;
    }
};

// Makes the compiler unpack again instead of keeping both forms live: a packed vector takes half the registers.
template <typename T, uint32_t n> __device__ __forceinline__ void keep_packed(vector<T, n>&) {}
__device__ __forceinline__ void keep_packed(vector<bf16, 8>& packed) {
    asm volatile("" : "+r"(packed.pairs[0]), "+r"(packed.pairs[1]), "+r"(packed.pairs[2]), "+r"(packed.pairs[3]));
}

// Vector `i` of a row of vectors.
template <uint32_t n, typename T> __device__ __forceinline__ vector<T, n> load_vector(const T* row, uint32_t i) {
    return reinterpret_cast<const vector<T, n>*>(row)[i];
}
template <uint32_t n, typename T>
__device__ __forceinline__ void store_vector(T* row, uint32_t i, const float (&values)[n]) {
    reinterpret_cast<vector<T, n>*>(row)[i] = vector<T, n>::of(values);
}

// The largest element.
template <typename T, uint32_t n> __device__ __forceinline__ float largest(const vector<T, n>& values) {
    float result = values[0];
#pragma unroll
    for (uint32_t i = 1; i < n; i++) result = fmaxf(result, values[i]);
    return result;
}
// Two at a time: a quarter of the instructions.
__device__ __forceinline__ float largest(const vector<bf16, 8>& values) {
    uint32_t pair = values.pairs[0];
#pragma unroll
    for (uint32_t i = 1; i < 4; i++) asm("max.bf16x2 %0, %0, %1;" : "+r"(pair) : "r"(values.pairs[i]));
    return fmaxf(unpack_bf16x2(pair, 0), unpack_bf16x2(pair, 1));
}

__device__ __forceinline__ bool is_finite(float value) { return (bits_of(value) & 0x7f800000u) != 0x7f800000u; }
// True if no element is infinite or NaN.
template <typename T, uint32_t n> __device__ __forceinline__ bool all_finite(const vector<T, n>& values) {
    bool result = true;
#pragma unroll
    for (uint32_t i = 0; i < n; i++) result &= is_finite(values[i]);
    return result;
}
// Two at a time: an exponent of ones carries into the sign, which was masked.
__device__ __forceinline__ bool all_finite(const vector<bf16, 8>& values) {
    uint32_t carries = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) carries |= (values.pairs[i] & 0x7f807f80u) + 0x00800080u;
    return (carries & 0x80008000u) == 0;
}

// 2^x within two ulp; subnormal results are flushed to 0.
__device__ __forceinline__ float exp2_ftz(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// log2(x): within 2^-22 for x in (0.5, 2), elsewhere that much of the result; subnormals are flushed to 0.
__device__ __forceinline__ float log2_ftz(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// 1 / x within one ulp; subnormals are flushed to 0.
__device__ __forceinline__ float reciprocal_ftz(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// The square root within one ulp; subnormals are flushed to 0.
__device__ __forceinline__ float sqrt_ftz(float x) {
    float result;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
// log2(e): e^x is 2^(x * LOG2_E).
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

__device__ __forceinline__ float sigmoid(float x) { return reciprocal_ftz(1.0f + exp2_ftz(-LOG2_E * x)); }
