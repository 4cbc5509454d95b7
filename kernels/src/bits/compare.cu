// Counts elements of rows whose bits are not those expected. A CTA takes a row and counts in integers, so that no order
// changes a count; each place in a sequence has counts of its own, so that no two CTAs write to one.
// Bound: memory. Reads both rows once, in 16-byte vectors where rows are aligned. Source: none needed.
#include "bits.h"
#include "vector.cuh"

// Sum over the CTA, of which thread 0 gets the result.
__device__ __forceinline__ uint32_t count_in_block(uint32_t count, uint32_t* scratch) {
#pragma unroll
    for (uint32_t lanes = WARP / 2; lanes > 0; lanes /= 2) count += shuffle_xor(count, lanes);
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = count;
    sync_block();
    uint32_t sum = 0;
    if (threadIdx.x == 0)
#pragma unroll
        for (uint32_t warp = 0; warp < VARIANT_THREADS / WARP; warp++) sum += scratch[warp];
    return sum;
}

template <uint32_t width> __device__ __forceinline__ void compare(const bits_compare_params& p) {
    __shared__ uint32_t scratch[2][VARIANT_THREADS / WARP];
    const uint32_t row = blockIdx.x, slot = ((const uint32_t*)p.slot)[row];
    if (slot == IDLE_SLOT) return;
    const uint64_t place = uint64_t(slot) * p.seq_len + ((const uint32_t*)p.position)[row];
    const KEY_X* found = (const KEY_X*)p.found + uint64_t(row) * p.vocab;
    const KEY_X* expected = (const KEY_X*)p.expected + place * p.vocab;
    uint32_t compared = 0, differing = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < p.vocab / width; i += VARIANT_THREADS) {
        const vector<KEY_X, width> f = load_vector<width>(found, i), e = load_vector<width>(expected, i);
        compared += width;
#pragma unroll
        for (uint32_t j = 0; j < width; j++) differing += bits_of(f[j]) != bits_of(e[j]);
    }
    compared = count_in_block(compared, scratch[0]);
    differing = count_in_block(differing, scratch[1]);
    if (threadIdx.x > 0) return;
    ((uint32_t*)p.compared)[place] = compared;
    ((uint32_t*)p.differing)[place] = differing;
}

KERNEL(bits_compare_params) {
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        compare<WIDTH_OF(KEY_X)>(p);
    else
        compare<1>(p);
}
