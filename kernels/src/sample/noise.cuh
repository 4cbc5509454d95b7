// Gumbel noise of a token: -ln(-ln(1 - u)), u uniform, from Philox4x32-10. Seed, sequence, position and token decide
// it, and nothing else: neither the row nor the thread.
// Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011; Gumbel, 1954.
#pragma once
#include "sample/polynomial.cuh"

struct uint32x4 {
    uint32_t v[4];

    __device__ __forceinline__ uint32_t of_token(uint32_t id) const {
        const uint32_t low = id % 2 ? v[1] : v[0], high = id % 2 ? v[3] : v[2];
        return id % 4 < 2 ? low : high;
    }
};

// The numbers of four tokens.
struct Philox {
    uint32_t key[2];     // the seed
    uint32_t counter[3]; // position, and the two halves of the sequence

    __device__ __forceinline__ uint32x4 of_tokens(uint32_t four) const {
        uint32_t c[4] = {four, counter[0], counter[1], counter[2]}, k[2] = {key[0], key[1]};
#pragma unroll
        for (uint32_t round = 0; round < 10; round++) {
            const uint32_t a = 0xd2511f53u * c[0], b = 0xcd9e8d57u * c[2];
            const uint32_t a_high = mul_hi(0xd2511f53u, c[0]), b_high = mul_hi(0xcd9e8d57u, c[2]);
            c[0] = b_high ^ c[1] ^ k[0], c[1] = b, c[2] = a_high ^ c[3] ^ k[1], c[3] = a;
            k[0] += 0x9e3779b9u, k[1] += 0xbb67ae85u;
        }
        return {{c[0], c[1], c[2], c[3]}};
    }
};

// The noise of a random number. A large one comes of a small u, which is as fine as floats are there: so even rare
// tokens have their share.
__device__ __forceinline__ float gumbel(uint32_t random) {
    const float unit = 0x1p-32f, half = 0x1p-33f;
    const float u = fma_rn(float(random), unit, half), rest = fma_rn(float(~random), unit, half); // 1 - u
    return -ln(-(random < 0x55555555u ? ln_1p(-u) : ln(rest)));
}

// An upper bound on the random numbers whose noise is `least` or more. The noise of r is at most -ln(r / 2^32), but for
// its rounding and that of this exponential: together far less than the thousandth that is added.
__device__ __forceinline__ float most_random(float least) { return 1.001f * exp2_ftz(fma_rn(least, -LOG2_E, 32.0f)); }
