// Gradient of the inputs of adapters' down projection on CUDA cores: dx += dt A, all parts of a stack in one sum, in
// place. A(i, r) = dt[i, r] is K-major, B(r, j) = a[r, j] MN-major.
// Bound: memory at the ranks that are common. Reads and writes dx once. Source: see mod.rs; gemm/simt/mainloop.cuh.
#include "lora.h"
#include "gemm/simt/mainloop.cuh"

KERNEL(lora_dgrad_a_params) {
    const Matrix a = {(const KEY_X*)p.dt, p.rank, p.m, p.rank};
    const Matrix b = {(const KEY_X*)p.a, p.k, p.k, p.rank};
    KEY_X* dx = (KEY_X*)p.dx;
    gemm<false, true>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        const uint64_t at = uint64_t(i) * p.k + j;
        dx[at] = from_float<KEY_X>(to_float(dx[at]) + sum);
    });
}
