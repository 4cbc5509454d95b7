/* Parameter block of softcap. */
#ifndef PRECAST_SOFTCAP_H
#define PRECAST_SOFTCAP_H
#include "types.h"

typedef struct softcap_fwd_params {
    address x;
    address y;
    uint32_t tokens;
    uint32_t n;
    float cap;
    uint32_t reserved;
} softcap_fwd_params;

#endif
