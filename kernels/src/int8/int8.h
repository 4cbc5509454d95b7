#ifndef PRECAST_INT8_H
#define PRECAST_INT8_H
#include "types.h"

/* A quantized matrix is its values, i8 [rows, k], and a scale for each row, f32: an element is value times scale.
 * Blocks of other headers end in what only kernels need that read or write such: their sources define INT8, and other kernels are
 * given the block up to there. */

/// int8.quantize { k: u32, x: Dtype }: Quantizes rows to rotated int8.
typedef struct int8_quantize_params {
    address x;     ///< [rows, k] x, read, rows(k)
    address q;     ///< [rows, k] i8, write
    address scale; ///< [rows] f32, write
    uint32_t rows;
    uint32_t reserved;
} int8_quantize_params;

/// int8.columns { n: u32, x: Dtype }: Quantizes columns to rotated int8, as rows.
typedef struct int8_columns_params {
    address x;     ///< [n, columns] x, read, columns(columns)
    address q;     ///< [columns, n] i8, write
    address scale; ///< [columns] f32, write
    uint32_t columns; ///< even
    uint32_t reserved;
} int8_columns_params;

#endif
