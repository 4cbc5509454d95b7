#include "types.h"

/// saxpy { x: Dtype }: Adds a multiple of one vector to another.
typedef struct saxpy_params {
    address x;  ///< [n] x, read
    address y;  ///< [n] x, update
    uint32_t n; ///< elements
    float a;    ///< factor of x
} saxpy_params;
