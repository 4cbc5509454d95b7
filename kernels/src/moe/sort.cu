// Sorts choices by expert: a counting sort, of which each CTA places a group of tokens, by the counts of all groups.
// The first CTA also lists tiles of each expert's rows. Prefix sums in fixed order: no atomics.
// Bound: L2, which serves each CTA the counts of all groups. Source: Knuth, "The Art of Computer Programming", vol. 3,
// 5.2.
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
        const uint32_t list = expert / p.each, first_of_list = list * p.each;
        uint32_t start = 0, entry = 1; // the first entry is the number of the others
        for (uint32_t lower = 0; lower < expert; lower++) {
            start += totals[lower];
            if (lower >= first_of_list) entry += (totals[lower] + EXPERT_TILE - 1) / EXPERT_TILE;
        }
        starts[expert] += start;
        if (blockIdx.x != 0) continue;
        const uint32_t end = start + totals[expert];
        Tile* const tiles = (Tile*)p.tiles + uint64_t(list) * p.list;
        for (uint32_t row = start; row < end && entry < p.list; row += EXPERT_TILE, entry++)
            tiles[entry] = {expert - first_of_list, row, min(row + EXPERT_TILE, end), 0};
        // The last expert's thread ends the list.
        if (expert + 1 == min(first_of_list + p.each, uint32_t(MATRICES))) {
            tiles[0] = {entry - 1, 0, 0, 0};
            for (; entry < p.list; entry++) tiles[entry] = {};
        }
    }
    sync_block();
    for (uint32_t i = threadIdx.x; i < tokens * CHOICES; i += VARIANT_THREADS) {
        const uint64_t at = uint64_t(first) * CHOICES + i;
        ((uint32_t*)p.places)[at] = starts[((const uint32_t*)p.choices)[at]] + ((const uint32_t*)p.ranks)[at];
    }
}
