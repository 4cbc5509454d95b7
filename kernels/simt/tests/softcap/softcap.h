#ifndef PRECAST_SOFTCAP_H
#define PRECAST_SOFTCAP_H
#include "types.h"

/// softcap.fwd { x: Dtype }: Bounds elements. Far below the cap tanh is the identity, so checks draw large ones.
typedef struct softcap_fwd_params {
    address x; ///< [tokens, n] x, read, normal(40.0)
    address y; ///< [tokens, n] x, write
    uint32_t tokens;
    uint32_t n;
    float cap; ///< upper bound of the magnitude of `y`
    uint32_t reserved;
} softcap_fwd_params;

#endif
