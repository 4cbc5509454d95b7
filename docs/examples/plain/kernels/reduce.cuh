#pragma once

// The sum of `own` over a block, in shared memory of a float a thread; the number of threads is a power of two.
static __device__ float block_sum(float own, float* scratch) {
    scratch[threadIdx.x] = own;
    __syncthreads();
    for (unsigned int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
        __syncthreads();
    }
    return scratch[0];
}
