// Gradients of adapters on tensor cores: dw = dy^T x, summed over the tokens, in f32, each part of a stack with its own
// columns of dy and x. A(i, r) = dy[r, i] and B(r, j) = x[r, j] are MN-major. Few tiles and many tokens: CTAs sum
// ranges of them separately, and column_sum.finish adds these in order. With many tiles there is one range, added to dw
// at once. n, columns and the parts are multiples of 8, addresses of 16 bytes; m is any.
// Bound: memory at the ranks that are common. Source: see mod.rs; gemm/mma/mainloop.cuh.
#include "lora/mma/tile.cuh"

KERNEL(lora_wgrad_params) {
    const uint32_t tiles = gridDim.x / p.splits, split = blockIdx.x / tiles;
    const auto tiles_of_part = [&](uint32_t part) { return tiles_of(p.part[part].width, p.columns); };
    const PartTile at = part_tile(blockIdx.x % tiles, p.parts, tiles_of_part);
    const lora_part part = p.part[at.part], last = p.part[p.parts - 1];
    Accumulators acc;
    gemm<true, true>({(const bf16*)p.dy + part.start, p.n, part.width, p.m},
                     {(const bf16*)p.x + at.part * p.columns, p.parts * p.columns, p.columns, p.m}, {at.tile, split, p.splits},
                     acc);
    const bool direct = p.splits == 1, add = direct && ((const micro_scalars*)p.micro)->accumulate;
    const uint64_t first = direct ? part.row : uint64_t(last.row + last.width) * split + part.row;
    store(acc, (direct ? p.dw : p.partial) + first * p.columns * sizeof(float), add, part.width, p.columns);
}
