// What a thread brings to `wgmma`: the kernel's side fills it in, the machine's reads it.
#pragma once
#include <stdint.h>

namespace simt {

struct Wgmma {
    uint32_t columns;
    float* d[128];         // sums, as many as half of the columns; i32 if `integers`
    uint32_t a_count;      // registers of A, or 0
    const uint32_t* a[4];
    uint64_t a_at, b;      // descriptors
    bool add, a_across, b_across;
    bool integers;         // each 16-bit element is a pair of s8, the lower byte first
    int32_t plus_a, plus_b; // 1, or -1: their signs
};

} // namespace simt
