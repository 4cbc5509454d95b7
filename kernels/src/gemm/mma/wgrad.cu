// Gradient of a linear layer's weights on tensor cores: dw (+)= dy^T x, summed over the tokens, in f32.
// A(i, r) = dy[r, i] and B(r, j) = x[r, j] are MN-major. Few tiles and many tokens: split-K, whose CTAs add to dw
// itself one after the other. n and k are multiples of 8, addresses of 16 bytes; m is any.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/mma/split_k.cuh"

KERNEL(gemm_wgrad_params) {
    Accumulators acc;
    const WorkTile work = work_of_cta(p.splits);
    const bool accumulate = p.accumulate || ((const micro_scalars*)p.micro)->accumulate;
    gemm<true, true>({(const void*)p.dy, p.n, p.n, p.m}, {(const void*)p.x, p.k, p.k, p.m}, work, acc);
    uint32_t* semaphore = (uint32_t*)p.semaphores + work.tile;
    if (work.count > 1) semaphore_wait(semaphore, work);
    store(acc, p.dw, work.index > 0 || accumulate, p.n, p.k);
    if (work.count > 1) semaphore_release(semaphore, work);
}
