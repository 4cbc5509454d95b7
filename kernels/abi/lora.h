#ifndef PRECAST_LORA_H
#define PRECAST_LORA_H
#include "step.h"

/* An adapted part of a stack: one of the projections that one product computes. */
typedef struct lora_part {
    float scale;
    uint32_t start; /* its first column of y */
    uint32_t width; /* its columns */
    uint32_t row;   /* its first row of b: the width of the parts before it */
} lora_part;

typedef struct lora_fwd_a_params {
    address x; /* [m, k] */
    address a; /* [parts * rank, k] */
    address t; /* [m, parts * rank] */
    uint32_t m;
    uint32_t k;
    uint32_t rank; /* of each part */
    uint32_t parts;
    lora_part part[3];
} lora_fwd_a_params;

typedef struct lora_fwd_b_params {
    address t; /* [m, parts * rank] */
    address b; /* [width of all parts, rank] */
    address y; /* [m, n]: columns of parts are added to, the rest is untouched */
    uint32_t m;
    uint32_t n;
    uint32_t rank;
    uint32_t parts;
    lora_part part[3];
} lora_fwd_b_params;

typedef struct lora_dgrad_b_params {
    address dy; /* [m, n] */
    address b;  /* [width of all parts, rank] */
    address dt; /* [m, parts * rank] */
    uint32_t m;
    uint32_t n;
    uint32_t rank;
    uint32_t parts;
    lora_part part[3];
} lora_dgrad_b_params;

typedef struct lora_dgrad_a_params {
    address dt; /* [m, rank] */
    address a;  /* [rank, k] */
    address dx; /* [m, k], added to */
    uint32_t m;
    uint32_t k;
    uint32_t rank; /* of all parts together */
    uint32_t reserved;
} lora_dgrad_a_params;

typedef struct lora_wgrad_params {
    address dy;      /* [m, n] */
    address x;       /* [m, parts * columns] */
    address dw;      /* [width of all parts, columns] f32, if splits is 1 */
    address partial; /* [splits, width of all parts, columns] f32, if it is more */
    address micro;   /* micro_scalars */
    uint32_t m;
    uint32_t n;
    uint32_t columns; /* of each part's gradient */
    uint32_t splits;  /* ranges of the m rows, whole slices of 32, each summed apart */
    uint32_t parts;
    uint32_t reserved;
    lora_part part[3];
} lora_wgrad_params;

#endif
