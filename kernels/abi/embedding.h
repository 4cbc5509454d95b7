#ifndef PRECAST_EMBEDDING_H
#define PRECAST_EMBEDDING_H
#include "types.h"

typedef struct embedding_fwd_params {
    address ids;   /* [tokens] u32, each < vocab */
    address table; /* [vocab, h] */
    address y;     /* [tokens, h] */
    uint32_t tokens;
    uint32_t vocab;
} embedding_fwd_params;

typedef struct embedding_bwd_params {
    address sorted_ids;       /* [tokens] u32, ascending */
    address sorted_positions; /* [tokens] u32, the row of dy each sorted id came from; ascending within an id */
    address dy;               /* [tokens, h] */
    address dtable;           /* [vocab, h] f32, added to */
    uint32_t tokens;
    uint32_t vocab;
} embedding_bwd_params;

#endif
