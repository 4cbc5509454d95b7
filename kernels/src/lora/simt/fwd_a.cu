// Down projection of adapters on CUDA cores: t = scale x A^T, for all parts of a stack together.
// Both operands are K-major: A(i, r) = x[i, r], B(r, j) = a[j, r].
// Bound: memory at the ranks that are common. Reads x once. Source: see mod.rs; gemm/simt/mainloop.cuh.
#include "lora.h"
#include "gemm/simt/mainloop.cuh"

KERNEL(lora_fwd_a_params) {
    const uint32_t columns = p.parts * p.rank;
    const Matrix a = {(const KEY_X*)p.x, p.k, p.m, p.k};
    const Matrix b = {(const KEY_X*)p.a, p.k, columns, p.k};
    KEY_X* t = (KEY_X*)p.t;
    gemm<false, false>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        t[uint64_t(i) * columns + j] = from_float<KEY_X>(p.part[j / p.rank].scale * sum);
    });
}
