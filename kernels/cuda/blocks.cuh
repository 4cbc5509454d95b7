// The block formats of ggml as a GGUF file holds them, and neighboring values of a block in registers.
//
// Layouts are those of ggml-common.h, arithmetic is that of dequantize_row_* in ggml-quants.c: each multiplication and
// addition is rounded by itself, none is fused, in that order. So the bits are those of the host
// (kernels/src/dequant/host.rs). A thread takes 4 or 8 values: one store of 16 bytes. Their numbers are taken out of
// words, four at a time: bytes and nibbles are never loaded one by one. Blocks are loaded by the widest vectors that
// their size permits: 16 bytes of Q4_K and Q5_K, 8 of Q5_1, 4 of Q4_1, and 2 of all others, whose size is no multiple
// of 4.
#pragma once
#include "vector.cuh"

template <uint32_t bytes> struct alignas(bytes) aligned_words {
    uint32_t v[bytes / 4];
};

// `n` words at `p`, which is a multiple of `align` bytes.
template <uint32_t align, uint32_t n> __device__ __forceinline__ void load_words(const uint8_t* p, uint32_t (&words)[n]) {
    if constexpr (align == 2) {
        const uint16_t* halves = reinterpret_cast<const uint16_t*>(p);
#pragma unroll
        for (uint32_t i = 0; i < n; i++) words[i] = halves[2 * i] | uint32_t(halves[2 * i + 1]) << 16;
    } else {
        constexpr uint32_t bytes = align < 4 * n ? align : 4 * n;
#pragma unroll
        for (uint32_t i = 0; i < 4 * n / bytes; i++) {
            const aligned_words<bytes> part = reinterpret_cast<const aligned_words<bytes>*>(p)[i];
#pragma unroll
            for (uint32_t j = 0; j < bytes / 4; j++) words[i * (bytes / 4) + j] = part.v[j];
        }
    }
}

__device__ __forceinline__ float half_to_float(uint32_t bits) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(uint16_t(bits)));
    return result;
}
__device__ __forceinline__ float load_half(const uint8_t* p) {
    return half_to_float(*reinterpret_cast<const uint16_t*>(p));
}

// A small number q as a float less `zero`: 2^23 + q is the float 0x4b000000 | q, and the difference is exact.
#define TWO_TO_23 0x4b000000u
template <uint32_t zero> __device__ __forceinline__ float number(uint32_t bits) {
    return __uint_as_float(bits) - float((1u << 23) + zero);
}
// The four bytes of each word, less `zero`.
template <uint32_t zero, uint32_t n>
__device__ __forceinline__ void numbers(const uint32_t (&words)[n / 4], float (&values)[n]) {
#pragma unroll
    for (uint32_t i = 0; i < n; i++) values[i] = number<zero>(__byte_perm(words[i / 4], TWO_TO_23, 0x7440 + i % 4));
}

// A bit to each byte: bits 0 to 3 of `bits`.
__device__ __forceinline__ uint32_t spread(uint32_t bits) { return ((bits & 0xfu) * 0x00204081u) & 0x01010101u; }

// Low or high nibbles of bytes.
template <uint32_t n> __device__ __forceinline__ void nibbles(uint32_t (&words)[n], uint32_t high) {
#pragma unroll
    for (uint32_t i = 0; i < n; i++) words[i] = words[i] >> (4 * high) & 0x0f0f0f0fu;
}

template <uint32_t n> __device__ __forceinline__ void scale_by(float scale, float (&values)[n]) {
#pragma unroll
    for (uint32_t i = 0; i < n; i++) values[i] = mul_rn(values[i], scale);
}
template <uint32_t n> __device__ __forceinline__ void add(float addend, float (&values)[n]) {
#pragma unroll
    for (uint32_t i = 0; i < n; i++) values[i] += addend;
}

// ---- blocks of 32: nibbles of 16 bytes are values 0 to 15, then 16 to 31 --------------------------------------------

template <uint32_t elems, uint32_t bytes, uint32_t align> struct alignas(align) block {
    enum : uint32_t { ELEMS = elems, ALIGN = align };
    uint8_t b[bytes];
};

// Scale; nibbles around 8.
struct Q4_0 : block<32, 18, 2> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        uint32_t words[n / 4];
        load_words<ALIGN>(b + 2 + first % 16, words);
        nibbles(words, first / 16);
        numbers<8>(words, v);
        scale_by(load_half(b), v);
    }
};

// Scale, minimum; nibbles.
struct Q4_1 : block<32, 20, 4> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        uint32_t words[n / 4];
        load_words<ALIGN>(b + 4 + first % 16, words);
        nibbles(words, first / 16);
        numbers<0>(words, v);
        scale_by(load_half(b), v);
        add(load_half(b + 2), v);
    }
};

// Nibbles and a bit of `fifths` each.
template <uint32_t align, uint32_t n>
__device__ __forceinline__ void five_bits(const uint8_t* low, const uint8_t* fifths, uint32_t first, uint32_t (&words)[n]) {
    uint32_t fifth[1];
    load_words<align>(fifths, fifth);
    load_words<align>(low + first % 16, words);
    nibbles(words, first / 16);
#pragma unroll
    for (uint32_t i = 0; i < n; i++) words[i] |= spread(fifth[0] >> (first + 4 * i)) << 4;
}

// Scale, fifth bits; nibbles, around 16.
struct Q5_0 : block<32, 22, 2> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        uint32_t words[n / 4];
        five_bits<ALIGN>(b + 6, b + 2, first, words);
        numbers<16>(words, v);
        scale_by(load_half(b), v);
    }
};

// Scale, minimum, fifth bits; nibbles.
struct Q5_1 : block<32, 24, 8> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        uint32_t words[n / 4];
        five_bits<4>(b + 8, b + 4, first, words);
        numbers<0>(words, v);
        scale_by(load_half(b), v);
        add(load_half(b + 2), v);
    }
};

// Scale; signed bytes.
struct Q8_0 : block<32, 34, 2> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        uint32_t words[n / 4];
        load_words<ALIGN>(b + 2 + first, words);
#pragma unroll
        for (uint32_t i = 0; i < n / 4; i++) words[i] ^= 0x80808080u; // 128 more
        numbers<128>(words, v);
        scale_by(load_half(b), v);
    }
};

// ---- blocks of 256
// -------------------------------------------------------------------------------------------------------

// Scale and minimum of the block, then of its groups of 32, 6 bits each: the first four groups have theirs in the low
// bits of 8 bytes, the last four in the nibbles of 4 bytes and the high bits of the 8. All of it is one vector.
struct group_scale {
    float scale, min;
    __device__ __forceinline__ group_scale(const uint8_t* block, uint32_t group) {
        uint32_t head[4];
        load_words<16>(block, head);
        const uint32_t shift = 8 * (group % 4);
        const uint32_t first = head[1] >> shift, second = head[2] >> shift, third = head[3] >> shift;
        const bool late = group >= 4;
        const uint32_t s = late ? (third & 0xfu) | (first >> 2 & 0x30u) : first & 0x3fu;
        const uint32_t m = late ? (third >> 4 & 0xfu) | (second >> 2 & 0x30u) : second & 0x3fu;
        scale = mul_rn(half_to_float(head[0] & 0xffffu), number<0>(TWO_TO_23 | s));
        min = mul_rn(half_to_float(head[0] >> 16), number<0>(TWO_TO_23 | m));
    }
    template <uint32_t n> __device__ __forceinline__ void apply(const uint32_t (&words)[n / 4], float (&v)[n]) const {
        numbers<0>(words, v);
        scale_by(scale, v);
        add(-min, v);
    }
};

// 12 bytes of scales and minimums after those of the block; nibbles: two groups share 32 bytes.
struct Q4_K : block<256, 144, 16> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        const uint32_t group = first / 32;
        uint32_t words[n / 4];
        load_words<4 * (n / 4)>(b + 16 + group / 2 * 32 + first % 32, words);
        nibbles(words, group % 2);
        group_scale(b, group).apply(words, v);
    }
};

// As Q4_K, with 32 bytes of fifth bits, bit g of them for group g.
struct Q5_K : block<256, 176, 16> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        const uint32_t group = first / 32;
        uint32_t words[n / 4], fifths[n / 4];
        load_words<4 * (n / 4)>(b + 48 + group / 2 * 32 + first % 32, words);
        load_words<4 * (n / 4)>(b + 16 + first % 32, fifths);
        nibbles(words, group % 2);
#pragma unroll
        for (uint32_t i = 0; i < n / 4; i++) words[i] |= (fifths[i] >> group & 0x01010101u) << 4;
        group_scale(b, group).apply(words, v);
    }
};

// Low nibbles, 64 bytes of high pairs of bits, 16 signed scales of 16 values, scale of the block; numbers of 6 bits
// around 32. In either half of the block, four groups of 32 share the bytes.
struct Q6_K : block<256, 210, 2> {
    template <uint32_t n> __device__ __forceinline__ void values(uint32_t first, float (&v)[n]) const {
        const uint32_t half = first / 128, quarter = first / 32 % 4;
        uint32_t words[n / 4], high[n / 4];
        load_words<ALIGN>(b + 64 * half + 32 * (quarter % 2) + first % 32, words);
        load_words<ALIGN>(b + 128 + 32 * half + first % 32, high);
        nibbles(words, quarter / 2);
#pragma unroll
        for (uint32_t i = 0; i < n / 4; i++) words[i] |= (high[i] >> (2 * quarter) & 0x03030303u) << 4;
        numbers<32>(words, v);
        const float scale = number<128>(TWO_TO_23 | (b[192 + first / 16] ^ 0x80u));
        scale_by(mul_rn(load_half(b + 208), scale), v);
    }
};

// ---- weights, dense or in blocks
// ----------------------------------------------------------------------------------------

// Elements of what a pointer to W counts.
template <typename W> struct elems_of {
    enum : uint32_t { VALUE = W::ELEMS };
};
template <> struct elems_of<float> {
    enum : uint32_t { VALUE = 1 };
};
template <> struct elems_of<bf16> {
    enum : uint32_t { VALUE = 1 };
};

// Vector `part` of a block of weights, rounded to X.
template <typename X, uint32_t n, typename W>
__device__ __forceinline__ vector<X, n> dequantized(const W& block, uint32_t part) {
    float values[n];
    block.values(part * n, values);
    return vector<X, n>::of(values);
}

// Vector `i` of a row of weights as elements of X: of dense ones, which are of X, as it is; of blocks rounded to X.
template <typename X, uint32_t n, typename W>
__device__ __forceinline__ vector<X, n> load_weights(const W* row, uint32_t i) {
    if constexpr (elems_of<W>::VALUE == 1) {
        return reinterpret_cast<const vector<X, n>*>(row)[i];
    } else {
        constexpr uint32_t parts = W::ELEMS / n;
        return dequantized<X, n>(row[i / parts], i % parts);
    }
}
