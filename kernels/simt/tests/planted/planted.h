/* The parameter block of every planted kernel. */
#include "types.h"

typedef struct planted_params {
    address x; /* in: f32[n] */
    address y; /* out: f32[n] */
    address semaphore; /* in and out: u32[1], 0 before and after */
    uint32_t n;
    uint32_t reserved;
} planted_params;
