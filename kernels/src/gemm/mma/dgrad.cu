// Gradient of a linear layer's inputs on tensor cores: dx = dy w, summed over the out features. A(i, r) = dy[i, r] is
// K-major, B(r, j) = w[r, j] MN-major. The head's gradient has few tiles, deep in the vocabulary: split-K, with f32
// partial sums in a workspace. n and k are multiples of 8, addresses of 16 bytes; m is any.
// Bound: tensor cores. Source: see mainloop.cuh.
#include "gemm/mma/split_k.cuh"

KERNEL(gemm_dgrad_params) {
    Accumulators acc;
    const WorkTile work = work_of_cta(p.splits);
    gemm<false, true>({(const void*)p.dy, p.n, p.m, p.n}, {(const void*)p.w, p.k, p.k, p.n}, work, acc);
    uint32_t* semaphore = (uint32_t*)p.semaphores + work.tile;
    if (work.count > 1) semaphore_wait(semaphore, work);
    if (work.index > 0) add_workspace(acc, p.workspace, work);
    if (work.last()) store<false, false>(acc, p.dx, 0, 0, p.m, p.k);
    else store_workspace(acc, p.workspace, work);
    if (work.count > 1) semaphore_release(semaphore, work);
}
