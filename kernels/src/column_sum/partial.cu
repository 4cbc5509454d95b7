// Column sums of groups of rows: the first step of every bias gradient.
// One thread a column, one block row a group; consecutive threads read consecutive columns.
// Which rows share a group depends on the shape alone, so the order of additions is fixed.
#include "device.cuh"
#include "column_sum.h"

KERNEL(column_sum_partial_params) {
    const uint32_t column = blockIdx.x * VARIANT_THREADS + threadIdx.x;
    if (column >= p.n) return;
    const KEY_X* x = (const KEY_X*)p.x;
    const uint32_t first = blockIdx.y * p.group;
    const uint32_t end = min(first + p.group, p.rows);
    float sum = 0.0f;
    for (uint32_t row = first; row < end; row++) sum += to_float(x[uint64_t(row) * p.n + column]);
    ((float*)p.partial)[uint64_t(blockIdx.y) * p.n + column] = sum;
}
