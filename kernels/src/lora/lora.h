#ifndef PRECAST_LORA_H
#define PRECAST_LORA_H
#include "step.h"

/* Parts of a stack, at most. */
#define LORA_PARTS 4

/// An adapted part of a stack: one of the projections that one matrix multiplication computes.
typedef struct lora_part {
    float scale;
    uint32_t start; ///< first column of `y`
    uint32_t width; ///< columns
    uint32_t row;   ///< first row of `b`: the width of the parts before it
} lora_part;

/* `width()`: of all parts together. */

/// lora.fwd_a { x: Dtype }: Multiplies inputs by `a`, to ranks.
/// flops: 2 * m * k * parts * rank
typedef struct lora_fwd_a_params {
    address x; ///< [m, k] x, read
    address a; ///< [parts * rank, k] x, read
    address t; ///< [m, parts * rank] x, write
    uint32_t m;
    uint32_t k;
    uint32_t rank; ///< of each part
    uint32_t parts;
    lora_part part[LORA_PARTS];
} lora_fwd_a_params;

/// lora.fwd_b { x: Dtype }: Multiplies ranks by `b`, and adds to the outputs.
/// flops: 2 * m * width() * rank
/// bytes: (m * parts * rank + width() * rank + 2 * m * width()) * x.bytes()
typedef struct lora_fwd_b_params {
    address t; ///< [m, parts * rank] x, read
    address b; ///< [width(), rank] x, read
    address y; ///< [m, n] x, update: columns of parts, the rest is untouched
    uint32_t m;
    uint32_t n;
    uint32_t rank; ///< of each part
    uint32_t parts;
    lora_part part[LORA_PARTS];
} lora_fwd_b_params;

/// lora.dgrad_b { x: Dtype }: Computes the gradient of the ranks.
/// flops: 2 * m * width() * rank
/// bytes: (m * width() + width() * rank + m * parts * rank) * x.bytes()
typedef struct lora_dgrad_b_params {
    address dy; ///< [m, n] x, read: columns of parts
    address b;  ///< [width(), rank] x, read
    address dt; ///< [m, parts * rank] x, write
    uint32_t m;
    uint32_t n;
    uint32_t rank; ///< of each part
    uint32_t parts;
    lora_part part[LORA_PARTS];
} lora_dgrad_b_params;

/// lora.dgrad_a { x: Dtype }: Computes the gradient of the inputs, and adds it to them.
/// flops: 2 * m * k * rank
typedef struct lora_dgrad_a_params {
    address dt; ///< [m, rank] x, read
    address a;  ///< [rank, k] x, read
    address dx; ///< [m, k] x, update
    uint32_t m;
    uint32_t k;
    uint32_t rank; ///< of all parts together
    uint32_t reserved;
} lora_dgrad_a_params;

/// lora.wgrad { x: Dtype }: Computes the gradients of either matrix.
/// flops: 2 * m * width() * columns
/// bytes: (m * width() + m * parts * columns) * x.bytes() + splits * width() * columns * 4
typedef struct lora_wgrad_params {
    address dy;      ///< [m, n] x, read: columns of parts
    address x;       ///< [m, parts * columns] x, read
    address dw;      ///< [width(), columns] f32, update if splits == 1
    address partial; ///< [splits, width(), columns] f32, write if splits != 1
    address micro;   ///< micro_scalars, read if splits == 1
    uint32_t m;
    uint32_t n;
    uint32_t columns; ///< of each part's gradient
    uint32_t splits;  ///< ranges of the m rows, whole slices of 32, each summed apart
    uint32_t parts;
    uint32_t reserved;
    lora_part part[LORA_PARTS];
} lora_wgrad_params;

#endif
