// Up projection of adapters on tensor cores: y += t B^T, each part of a stack with its own t and B, in place. Both
// operands are K-major: A(i, r) = t[i, r], B(r, j) = b[j, r]. Sums are short and y dominates: its loads start before
// them. n, rank and the parts are multiples of 8, addresses of 16 bytes; m is any.
// Bound: memory at the ranks that are common. Source: see mod.rs; gemm/mma/mainloop.cuh.
#include "lora/mma/add.cuh"

KERNEL(lora_fwd_b_params) {
    const PartTile at = part_tile(blockIdx.x, p.parts, [&](uint32_t part) { return tiles_of(p.m, p.part[part].width); });
    const lora_part part = p.part[at.part];
    const Rows y = {(bf16*)p.y + part.start, p.n, p.m, part.width};
    const Before before(y, at.tile);
    Accumulators acc;
    gemm<false, false>({(const bf16*)p.t + at.part * p.rank, p.parts * p.rank, p.m, p.rank},
                       {(const bf16*)p.b + uint64_t(part.row) * p.rank, p.rank, part.width, p.rank}, {at.tile, 0, 1}, acc);
    add_rows(acc, before, y);
}
