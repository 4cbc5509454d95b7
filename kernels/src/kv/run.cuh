// Runs: neighboring rows of one slot, which are consecutive tokens of its sequence. A slot has one run of a launch.
#pragma once
#include "device.cuh"
#include "kv.h"

struct Run {
    uint32_t slot, position; // of the row asked for
    uint32_t rows;           // of the run that begins there, 0 if none does
};

// Returns the run that begins at a row. All lanes of a warp call it, for one row.
__device__ __forceinline__ Run run_of(address slots, address positions, uint32_t row, uint32_t rows) {
    const uint32_t* all = (const uint32_t*)slots;
    const uint32_t lane = threadIdx.x % WARP;
    Run run = {all[row], ((const uint32_t*)positions)[row], 0};
    const uint32_t before = row > 0 ? all[row - 1] : IDLE_SLOT;
    for (uint32_t base = row;; base += WARP) {
        const uint32_t slot = base + lane < rows ? all[base + lane] : IDLE_SLOT;
        if (run.slot == IDLE_SLOT || before == run.slot) return run;
        const uint32_t same = count_lanes(slot == run.slot);
        run.rows += same;
        if (same < WARP) return run;
    }
}
