// A random number of a row, by Philox4x32-10: seed, sequence and position decide it, and nothing else, so that it
// depends neither on the row nor on the thread.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
#pragma once
#include "device.cuh"

// 64 random bits.
__device__ __forceinline__ uint64_t philox(uint64_t seed, const uint32_t (&counter)[3]) {
    uint32_t c[4] = {0, counter[0], counter[1], counter[2]}, k[2] = {uint32_t(seed), uint32_t(seed >> 32)};
#pragma unroll
    for (uint32_t round = 0; round < 10; round++) {
        const uint32_t a = 0xd2511f53u * c[0], b = 0xcd9e8d57u * c[2];
        const uint32_t a_high = mul_hi(0xd2511f53u, c[0]), b_high = mul_hi(0xcd9e8d57u, c[2]);
        c[0] = b_high ^ c[1] ^ k[0], c[1] = b, c[2] = a_high ^ c[3] ^ k[1], c[3] = a;
        k[0] += 0x9e3779b9u, k[1] += 0xbb67ae85u;
    }
    return uint64_t(c[1]) << 32 | c[0];
}
