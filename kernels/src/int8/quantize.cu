// Quantizes rows to int8: rotates each block of columns, gives the row one scale, rounds values to nearest even. One
// pass over memory: a row stays in registers while its largest value is found.
// Bound: memory. Reads x once, writes one byte a value.
// Sources: Ashkboos et al., "QuaRot", 2024 (arXiv 2404.00456); Fino and Algazi, "Unified Matrix Treatment of the Fast
// Walsh-Hadamard Transform", 1976.
enum : unsigned { ROW = KEY_K };
#include "early.cuh"
#include "int8.h"
#include "int8/row.cuh"

KERNEL(int8_quantize_params) {
    begin_early();
    const uint32_t row = row_of_thread(p.rows);
    Vector x[PER_THREAD]; // all loads are in flight together
    load_row(x, (const KEY_X*)p.x + uint64_t(row) * ROW, row < p.rows);
    RowOut out(nullptr, row < p.rows);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++)
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) out.share.v[j][i] = x[j][i];
    out.finish(p, row);
}
