// Copies each token's row to the places of its choices. A warp takes a token: it reads the row once.
// Bound: memory. Source: Gale et al., "MegaBlocks", 2023.
#include "moe.h"
#include "vector.cuh"

typedef signed char int8_t; // KEY_X of 8-bit values
typedef KEY_X Element;

// Copies a row of vectors of 16 bytes, or of elements.
template <typename T>
__device__ __forceinline__ void copy_row(const moe_permute_params& p, uint32_t token, uint32_t count) {
    const uint32_t* places = (const uint32_t*)p.places + uint64_t(token) * p.choices;
    const T* from = (const T*)p.x + uint64_t(token) * count;
    for (uint32_t i = threadIdx.x % WARP; i < count; i += WARP) {
        const T value = from[i];
        for (uint32_t choice = 0; choice < p.choices; choice++) ((T*)p.y)[uint64_t(places[choice]) * count + i] = value;
    }
}

KERNEL(moe_permute_params) {
    const uint32_t token = blockIdx.x * (VARIANT_THREADS / WARP) + threadIdx.x / WARP;
    if (token >= p.tokens) return;
    const uint32_t bytes = p.h * sizeof(Element);
    if (bytes % 16 == 0) copy_row<float4_t>(p, token, bytes / 16);
    else copy_row<Element>(p, token, p.h);
    const uint32_t choice = threadIdx.x % WARP;
    if (sizeof(Element) != 1 || choice >= p.choices) return; // only 8-bit values have scales
    const uint32_t place = ((const uint32_t*)p.places)[uint64_t(token) * p.choices + choice];
    ((float*)p.y_scale)[place] = ((const float*)p.x_scale)[token];
}
