#include "types.h"

/// smooth { x: Dtype }: Averages each element with its neighbors, 1 : 2 : 1.
typedef struct smooth_params {
    address x;  ///< [n] x, read
    address y;  ///< [n] x, write
    uint64_t n; ///< elements
} smooth_params;
