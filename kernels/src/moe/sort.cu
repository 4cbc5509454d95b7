// Sorts choices by expert: a counting sort, of which each CTA places a group of tokens, by the counts of all groups. The first
// CTA also divides each expert's rows into tiles. Prefix sums in fixed order: no atomics.
// Bound: L2, which serves each CTA the counts of all groups. Source: Knuth, "The Art of Computer Programming", vol. 3, 5.2.
#include "moe.h"
#include "device.cuh"

enum : uint32_t {
    CHOICES = KEY_CHOSEN + KEY_SHARED,
    MATRICES = KEY_EXPERTS + KEY_SHARED,
};

struct alignas(16) Tile {
    uint32_t expert, first, end, reserved;
};

KERNEL(moe_sort_params) {
    __shared__ uint32_t totals[MATRICES], starts[MATRICES]; // rows of an expert; of this group, its first
    const uint32_t groups = gridDim.x, first = blockIdx.x * ROUTE_GROUP;
    const uint32_t tokens = min(p.tokens - first, uint32_t(ROUTE_GROUP));
    for (uint32_t expert = threadIdx.x; expert < MATRICES; expert += VARIANT_THREADS) {
        uint32_t before = 0, total = 0;
        for (uint32_t group = 0; group < groups; group++) {
            if (group == blockIdx.x) before = total;
            total += ((const uint32_t*)p.counts)[uint64_t(group) * MATRICES + expert];
        }
        totals[expert] = total;
        starts[expert] = before;
    }
    sync_block();
    for (uint32_t expert = threadIdx.x; expert < MATRICES; expert += VARIANT_THREADS) {
        uint32_t start = 0, tile = 0;
        for (uint32_t lower = 0; lower < expert; lower++) {
            start += totals[lower];
            tile += (totals[lower] + EXPERT_TILE - 1) / EXPERT_TILE;
        }
        starts[expert] += start;
        if (blockIdx.x != 0) continue;
        const uint32_t end = start + totals[expert];
        for (uint32_t row = start; row < end && tile < p.list; row += EXPERT_TILE, tile++)
            ((Tile*)p.tiles)[tile] = {expert, row, min(row + EXPERT_TILE, end), 0};
        // The last expert's thread ends the list.
        if (expert + 1 == MATRICES)
            for (; tile < p.list; tile++) ((Tile*)p.tiles)[tile] = {};
    }
    sync_block();
    for (uint32_t i = threadIdx.x; i < tokens * CHOICES; i += VARIANT_THREADS) {
        const uint64_t at = uint64_t(first) * CHOICES + i;
        ((uint32_t*)p.places)[at] = starts[((const uint32_t*)p.choices)[at]] + ((const uint32_t*)p.ranks)[at];
    }
}
