// Gradient of the inputs of adapters' up projection on CUDA cores: dt = scale dy B, each part of a stack with its own
// columns of dy. A(i, r) = dy[i, r] is K-major, B(r, j) = b[r, j] MN-major. A part is a layer of the grid.
// Bound: memory at the ranks that are common. Reads dy once. Source: see mod.rs; gemm/simt/mainloop.cuh.
#include "lora.h"
#include "gemm/simt/mainloop.cuh"

KERNEL(lora_dgrad_b_params) {
    const lora_part part = p.part[blockIdx.z];
    const uint32_t columns = p.parts * p.rank;
    const Matrix a = {(const KEY_X*)p.dy + part.start, p.n, p.m, part.width};
    const Matrix b = {(const KEY_X*)p.b + uint64_t(part.row) * p.rank, p.rank, p.rank, part.width};
    KEY_X* dt = (KEY_X*)p.dt + blockIdx.z * p.rank;
    gemm<false, true>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        dt[uint64_t(i) * columns + j] = from_float<KEY_X>(part.scale * sum);
    });
}
