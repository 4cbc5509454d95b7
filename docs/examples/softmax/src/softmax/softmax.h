#include "types.h"

/// softmax { columns: u32, x: Dtype }: Turns each row into probabilities.
typedef struct softmax_params {
    address x;         ///< [rows, columns] x, read, rows(columns)
    address y;         ///< [rows, columns] x, write
    uint32_t rows;     ///< at least 1
    uint32_t reserved;
} softmax_params;
