// Box blur of a gray image, a block for each row: each thread sums the 2 * radius + 1 pixels around its own, which the
// block has in shared memory.
extern "C" __global__ void blur_rows(const float* in, float* out, int width, int height, int radius) {
    extern __shared__ float row[];
    int y = blockIdx.x;
    for (int x = threadIdx.x; x < width; x += blockDim.x) {
        row[x] = in[y * width + x];
    }
    __syncthreads();
    for (int x = threadIdx.x; x < width; x += blockDim.x) {
        float sum = 0.0f;
        for (int at = x - radius; at <= x + radius; ++at) {
            sum += row[min(max(at, 0), width - 1)];
        }
        out[y * width + x] = sum / (2 * radius + 1);
    }
}

// x = by x + to, of n pixels.
extern "C" __global__ void scale(float* x, float by, float to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] = by * x[i] + to;
    }
}

// out = in, in another type.
template <typename From, typename To>
__global__ void convert(const From* in, To* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = static_cast<To>(in[i]);
    }
}
