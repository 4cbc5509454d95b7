// Down projection of adapters on tensor cores: t = scale x A^T, for all parts of a stack together: x is read once.
// Both operands are K-major: A(i, r) = x[i, r], B(r, j) = a[j, r]. Tiles are narrow, as t is, and deep in flight.
// k and rank are multiples of 8, addresses of 16 bytes; m is any.
// Bound: memory at the ranks that are common. Source: see mod.rs; gemm/mma/mainloop.cuh.
#include "lora/mma/epilogue.cuh"

KERNEL(lora_fwd_a_params) {
    const uint32_t columns = p.parts * p.rank;
    Accumulators acc;
    gemm<false, false>({(const void*)p.x, p.k, p.m, p.k}, {(const void*)p.a, p.k, columns, p.k}, {blockIdx.x, 0, 1}, acc);
    // A rank is a multiple of 8, so a block of eight columns belongs to one part.
    scale_columns(acc, [&](uint32_t j) { return j < columns ? p.part[j / p.rank].scale : 0.0f; });
    store_rows(acc, {(bf16*)p.t, columns, p.m, columns});
}
