#ifndef PRECAST_INT8_H
#define PRECAST_INT8_H
#include "types.h"

/* A quantized matrix is its values, i8 [rows, k], and a scale for each row, f32: an element is their product.
 * Blocks of other headers end in what only kernels need that read or write such: their sources define INT8, and other kernels are
 * given the block up to there. */

typedef struct int8_quantize_params {
    address x;     /* [rows, k] */
    address q;     /* [rows, k] i8 */
    address scale; /* [rows] f32 */
    uint32_t rows;
    uint32_t reserved;
} int8_quantize_params;

typedef struct int8_columns_params {
    address x;     /* [n, columns] */
    address q;     /* [columns, n] i8 */
    address scale; /* [columns] f32 */
    uint32_t columns;
    uint32_t reserved;
} int8_columns_params;

#endif
