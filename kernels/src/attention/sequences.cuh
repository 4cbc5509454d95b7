// The tiles of sequences that lie end to end, in order of work: no list of them is in memory, as each CTA finds its own
// from the sequences, longest first.
#pragma once
#include "sequence.cuh"

struct SequenceTile {
    uint32_t first, length; // of the sequence; no tokens behind the last tile
    uint32_t tile, tiles;   // the tile's number in its sequence, and the sequence's tiles
};

// Returns tile `index` of those of `rows` rows of all sequences, of which each token has `heads`. Tiles with the
// largest number come first, and of the same number those of the longest sequences.
//
// So the tiles from number n up, which k + 1 sequences have, begin behind those of the same sequences with larger
// numbers: lane k's start is the sum of tiles of sequences 0 .. k, less (k + 1) times those of sequence k.
template <uint32_t rows>
__device__ __forceinline__ SequenceTile sequence_tile(address sequences, uint32_t count, uint32_t heads,
                                                      uint32_t index) {
    const Sequence* all = (const Sequence*)sequences;
    const uint32_t lane = threadIdx.x % WARP;
    const auto tiles_of = [&](uint32_t length) { return (length * heads + rows - 1) / rows; };
    // Tiles of the shortest sequence that has such a tile, the first of them, and the sequences that have them.
    uint32_t most = 0, start = 0, sharing = 1;
    for (uint32_t base = 0, before = 0; base < count; base += WARP) {
        const uint32_t tiles = base + lane < count ? tiles_of(all[base + lane].length) : 0;
        const uint32_t sum = before + inclusive_sum(tiles);
        const uint32_t own_start = sum - (base + lane + 1) * tiles, started = count_lanes(own_start <= index);
        if (started == 0) break;
        most = shuffle(tiles, started - 1);
        start = shuffle(own_start, started - 1);
        sharing = base + started;
        if (started < WARP || most == 0) break;
        before = shuffle(sum, WARP - 1);
    }
    const uint32_t round = (index - start) / sharing, sequence = (index - start) % sharing;
    if (round >= most) return {};
    const Sequence own = all[sequence];
    return {broadcast(own.first), broadcast(own.length), broadcast(most - 1 - round), broadcast(tiles_of(own.length))};
}
