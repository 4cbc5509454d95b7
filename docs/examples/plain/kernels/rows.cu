#include <activations/gelu.h>

typedef unsigned long long u64;

template <typename T> static __device__ T value(const T* x, u64 i) {
    return activations::gelu(x[i]);
}

// y[i] = gelu(x[i]), for more elements than 32 bits count.
extern "C" __global__ void gelu(const double* x, double* y, u64 n) {
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (u64)blockDim.x) y[i] = value(x, i);
}

// Rows of `width` floats: row i of y is row index[i] of x, or zeros where that is negative.
extern "C" __global__ void gather(const float* x, const long long* index, float* y, u64 rows, u64 width, bool zeros) {
    for (u64 row = blockIdx.x; row < rows; row += gridDim.x) {
        const long long from = index[row];
        for (u64 i = threadIdx.x; i < width; i += blockDim.x) {
            if (from >= 0) y[row * width + i] = x[from * width + i];
            else if (zeros) y[row * width + i] = 0.0f;
        }
    }
}
