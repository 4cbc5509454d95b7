// Kernels as a program has them that compiles them with NVRTC or nvcc: nothing here knows of Precast.
#include "reduce.cuh"

struct affine {
    float scale[4];
    float shift[4];
    int steps;
};

extern "C" __global__ void saxpy(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

// The sum of n floats, a partial sum a block.
extern "C" __global__ void sum(const float* x, float* partial, unsigned int n) {
    extern __shared__ float scratch[];
    float own = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) own += x[i];
    const float all = block_sum(own, scratch);
    if (threadIdx.x == 0) partial[blockIdx.x] = all;
}

// y = scale * x + shift + bias, `steps` times over, for each channel of n pixels.
extern "C" __global__ void __launch_bounds__(256) transform(affine map, short n, float4 bias, float4* y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = y[i];
        for (int step = 0; step < map.steps; step++) {
            v.x = map.scale[0] * v.x + map.shift[0] + bias.x;
            v.y = map.scale[1] * v.y + map.shift[1] + bias.y;
            v.z = map.scale[2] * v.z + map.shift[2] + bias.z;
            v.w = map.scale[3] * v.w + map.shift[3] + bias.w;
        }
        y[i] = v;
    }
}
