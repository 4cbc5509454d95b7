// Gradient of the inputs of adapters' up projection on tensor cores: dt = scale dy B, each part of a stack with its own
// columns of dy. A(i, r) = dy[i, r] is K-major, B(r, j) = b[r, j] MN-major. Tiles are narrow, as dt is, and deep in
// flight. n, rank and the parts are multiples of 8, addresses of 16 bytes; m is any.
// Bound: memory at the ranks that are common. Source: see mod.rs; gemm/mma/mainloop.cuh.
#include "lora/mma/epilogue.cuh"

KERNEL(lora_dgrad_b_params) {
    const PartTile at = part_tile(blockIdx.x, p.parts, [&](uint32_t) { return tiles_of(p.m, p.rank); });
    const lora_part part = p.part[at.part];
    Accumulators acc;
    gemm<false, true>({(const bf16*)p.dy + part.start, p.n, p.m, part.width},
                      {(const bf16*)p.b + uint64_t(part.row) * p.rank, p.rank, p.rank, part.width}, {at.tile, 0, 1}, acc);
    scale_columns(acc, [&](uint32_t) { return part.scale; });
    store_rows(acc, {(bf16*)p.dt + at.part * p.rank, p.parts * p.rank, p.m, p.rank});
}
