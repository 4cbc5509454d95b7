// Up projection of adapters on CUDA cores: y += t B^T, each part of a stack with its own t and B, in place.
// Both operands are K-major: A(i, r) = t[i, r], B(r, j) = b[j, r]. A part is a layer of the grid.
// Bound: memory at the ranks that are common. Reads and writes y once. Source: see mod.rs; gemm/simt/mainloop.cuh.
#include "lora.h"
#include "gemm/simt/mainloop.cuh"

KERNEL(lora_fwd_b_params) {
    const lora_part part = p.part[blockIdx.z];
    if (blockIdx.x * TILE >= part.width) return;
    const uint32_t columns = p.parts * p.rank;
    const Matrix a = {(const KEY_X*)p.t + blockIdx.z * p.rank, columns, p.m, p.rank};
    const Matrix b = {(const KEY_X*)p.b + uint64_t(part.row) * p.rank, p.rank, part.width, p.rank};
    KEY_X* y = (KEY_X*)p.y + part.start;
    gemm<false, false>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        const uint64_t at = uint64_t(i) * p.n + j;
        y[at] = from_float<KEY_X>(to_float(y[at]) + sum);
    });
}
