// Gradient of a linear layer's inputs on tensor cores: dx = dy w, summed over the out features.
// A(i, r) = dy[i, r] runs along r in memory; B(r, j) = w[r, j] runs along j: transposed. The head's is few tiles, deep in
// the vocabulary: blocks share a tile and add to it in turn, in f32. n and k are multiples of 8, addresses of 16 bytes;
// m is any. See multiply.cuh.
#include "gemm/mma/split.cuh"

KERNEL(gemm_dgrad_params) {
    Sums sums;
    const Part part = part_of_block(p.splits);
    multiply<false, true>({(const void*)p.dy, p.n, p.m, p.n}, {(const void*)p.w, p.k, p.k, p.n}, part, sums);
    uint32_t* semaphore = (uint32_t*)p.semaphores + part.tile;
    if (part.count > 1) semaphore_wait(semaphore, part);
    if (part.index > 0) add_workspace(sums, p.workspace, part);
    if (part.last()) store<false, false>(sums, p.dx, 0, 0, p.m, p.k);
    else store_workspace(sums, p.workspace, part);
    if (part.count > 1) semaphore_release(semaphore, part);
}
