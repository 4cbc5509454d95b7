// Rows to int8: each block of columns is rotated, the row gets one scale, values are rounded to nearest, even.
// One pass over memory: a row stays in registers while its largest value is found.
// Bound: memory. Reads x once, writes one byte a value.
// Sources: Ashkboos et al., "QuaRot", 2024 (arXiv 2404.00456); Fino and Algazi, "Unified Matrix Treatment of the Fast
// Walsh-Hadamard Transform", 1976.
enum : unsigned { ROW = KEY_K };
#include "int8/row.cuh"

KERNEL(int8_quantize_params) {
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t from_last = row_from_last(), row = p.rows - 1 - from_last;
    const bool valid = from_last < p.rows;
    const KEY_X* x = (const KEY_X*)p.x + uint64_t(row) * ROW;

    Eight<KEY_X> packed[ROUNDS][VECTORS]; // all loads are in flight together
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++) {
            packed[round][j] = {};
            if (valid && inside(round, j)) packed[round][j] = *reinterpret_cast<const Eight<KEY_X>*>(x + column_of(round, j));
        }
    Share share;
#pragma unroll
    for (uint32_t round = 0; round < ROUNDS; round++)
#pragma unroll
        for (uint32_t j = 0; j < VECTORS; j++)
#pragma unroll
            for (uint32_t i = 0; i < WIDTH; i++) share.v[round][j][i] = packed[round][j][i];
    store_quantized(share, (uint8_t*)p.q + uint64_t(row) * ROW, (float*)p.scale + row, valid, scratch);
}
