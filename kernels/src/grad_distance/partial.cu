// Dot products of fixed groups of two gradients: for a cosine and a ratio of norms. One CTA per group; groups do
// not depend on the GPU, so the distance is bit-identical.
// Bound: memory. Reads both gradients once, eight 16-byte vectors in flight per thread.
// Source: the groups are those of grad_norm/partial.cu.
#include "device.cuh"
#include "grad_distance.h"

struct Sums {
    float ab, aa, bb;

    __device__ __forceinline__ void add(float a, float b) {
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
};

KERNEL(grad_distance_partial_params) {
    __shared__ float scratch[3][VARIANT_THREADS / WARP];
    const uint64_t first = uint64_t(blockIdx.x) * p.group;
    const uint64_t rest = p.n - first;
    const uint32_t count = rest < p.group ? uint32_t(rest) : p.group;
    const float* a = (const float*)p.a + first;
    const float* b = (const float*)p.b + first;
    Sums sums = {};
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < count / 4; i += VARIANT_THREADS) {
        const float4_t four = load4(a + 4 * i), other = load4(b + 4 * i);
#pragma unroll
        for (int j = 0; j < 4; j++) sums.add(four.v[j], other.v[j]);
    }
    for (uint32_t i = count / 4 * 4 + threadIdx.x; i < count; i += VARIANT_THREADS) sums.add(a[i], b[i]);
    sums.ab = block_sum<VARIANT_THREADS>(sums.ab, scratch[0]);
    sums.aa = block_sum<VARIANT_THREADS>(sums.aa, scratch[1]);
    sums.bb = block_sum<VARIANT_THREADS>(sums.bb, scratch[2]);
    if (threadIdx.x > 0) return;
    float* partial = (float*)p.partial + blockIdx.x;
    partial[0] = sums.ab;
    partial[gridDim.x] = sums.aa;
    partial[2 * uint64_t(gridDim.x)] = sums.bb;
}
