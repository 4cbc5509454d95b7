// Parts of the depth that share a tile, each in a block of its own, add what they have summed one after the other: an
// order that does not depend on timing. Blocks of earlier parts come first in the grid, so nobody waits for a block that
// has not started.
#pragma once
#include "gemm/mma/store.cuh"

// Until it is this part's turn. What the parts before it have stored is visible then.
__device__ __forceinline__ void wait_turn(const uint32_t* turn, const Part& part) {
    if (threadIdx.x == 0)
        while (load_acquire(turn) != part.index) {}
    sync_block();
}

// The next part's turn; after the last one the turn is 0 again.
__device__ __forceinline__ void pass_turn(uint32_t* turn, const Part& part) {
    sync_block();
    if (threadIdx.x == 0) store_release(turn, part.last() ? 0 : part.index + 1);
}
