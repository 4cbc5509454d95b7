// Gradient of a linear layer's weights on tensor cores: dw (+)= dy^T x, summed over the tokens, in f32.
// A(i, r) = dy[r, i] and B(r, j) = x[r, j] run across r in memory: both are transposed. Few tiles and many tokens: blocks
// share a tile and add to it in turn. n and k are multiples of 8, addresses of 16 bytes; m is any. See multiply.cuh.
#include "gemm/mma/split.cuh"

KERNEL(gemm_wgrad_params) {
    Sums sums;
    const Part part = part_of_block(p.splits);
    const bool accumulate = p.accumulate || ((const micro_scalars*)p.micro)->accumulate;
    multiply<true, true>({(const void*)p.dy, p.n, p.n, p.m}, {(const void*)p.x, p.k, p.k, p.m}, part, sums);
    uint32_t* semaphore = (uint32_t*)p.semaphores + part.tile;
    if (part.count > 1) semaphore_wait(semaphore, part);
    store(sums, p.dw, part.index > 0 || accumulate, p.n, p.k);
    if (part.count > 1) semaphore_release(semaphore, part);
}
