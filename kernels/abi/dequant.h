#ifndef PRECAST_DEQUANT_H
#define PRECAST_DEQUANT_H
#include "types.h"

typedef struct dequant_params {
    address w; /* n elements in blocks */
    address x; /* [n] */
    uint64_t n; /* whole blocks */
} dequant_params;

#endif
