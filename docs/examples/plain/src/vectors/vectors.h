#include "types.h"

/// saxpy {}: Adds a multiple of one vector to another.
typedef struct saxpy_params {
    address x;  ///< [n] f32, read
    address y;  ///< [n] f32, update
    float a;    ///< factor of x
    uint32_t n; ///< elements
} saxpy_params;

/// sum {}: Sums a vector, 8 blocks of 128 threads to a partial sum each.
typedef struct sum_params {
    address x;         ///< [n] f32, read
    address partial;   ///< [8] f32, write
    uint32_t n;        ///< elements
    uint32_t reserved; ///< padding
} sum_params;
