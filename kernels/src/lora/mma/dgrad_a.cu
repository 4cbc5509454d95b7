// Gradient of the inputs of adapters' down projection on tensor cores: dx += dt A, all parts of a stack in one sum, in
// place. A(i, r) = dt[i, r] is K-major, B(r, j) = a[r, j] MN-major. Sums are short and dx dominates: its loads start
// before them. k and rank are multiples of 8, addresses of 16 bytes; m is any.
// Bound: memory at the ranks that are common. Source: see mod.rs; gemm/mma/mainloop.cuh.
#include "lora/mma/add.cuh"

KERNEL(lora_dgrad_a_params) {
    const Rows dx = {(bf16*)p.dx, p.k, p.m, p.k};
    const Before before(dx, blockIdx.x);
    Accumulators acc;
    gemm<false, true>({(const void*)p.dt, p.rank, p.m, p.rank}, {(const void*)p.a, p.k, p.k, p.rank}, {blockIdx.x, 0, 1}, acc);
    add_rows(acc, before, dx);
}
