#ifndef PRECAST_MOE_H
#define PRECAST_MOE_H
#include "tiles.h"
#include "types.h"

/* A mixture of experts: each token chooses `chosen` of `experts`, and takes a shared one besides, if there is one. */

/* Tokens whose choices are counted together. */
#define ROUTE_GROUP 64

/// moe.route { chosen: u32, experts: u32, normalize: bool, shared: bool, x: Dtype }: Chooses the experts of each token.
/// flops: tokens * experts * (chosen + 4)
typedef struct moe_route_params {
    address logits;  ///< [tokens, columns] x, read, logits(columns): of each expert, then of the shared one
    address choices; ///< [tokens, choices()] u32, write: by decreasing logit, of equals the lower; then the shared one
    address weights; ///< [tokens, choices()] f32, write: factor of what each choice computes
    address ranks;   ///< [tokens, choices()] u32, write: earlier choices of the same expert in the group of tokens
    address counts;  ///< [groups(), matrices()] u32, write: choices of each expert in a group of ROUTE_GROUP tokens
    uint32_t tokens;
    uint32_t columns; ///< of a row of logits, at least one for each expert
} moe_route_params;

/// moe.sort { chosen: u32, experts: u32, shared: bool }: Sorts choices by expert, and lists tiles of experts' rows.
/// flops: 0
typedef struct moe_sort_params {
    address choices; ///< [tokens, choices()] u32, read, ids(experts)
    address ranks;   ///< [tokens, choices()] u32, read, ids(64)
    address counts;  ///< [groups(), matrices()] u32, read, ids(65)
    address places;  ///< [tokens, choices()] u32, write: row of each choice, where rows lie by expert
    address tiles;   ///< [lists(), list, 4] u32, write: lists of tiles, of `each` neighboring experts
    uint32_t tokens;
    uint32_t list; ///< entries of a list: the number of tiles, and tiles
    uint32_t each; ///< experts of a list; the last one may have fewer
    uint32_t reserved;
} moe_sort_params;

/// moe.permute { x: Format }: Copies each token's row to the places of its choices.
/// bytes: tokens * h + tokens * choices * (h + 4)
typedef struct moe_permute_params {
    address x;       ///< [tokens, h] x, read
    address x_scale; ///< [tokens] f32, read if x == i8, uniform(1e-3, 2e-2)
    address places;  ///< [tokens, choices] u32, read, permutation
    address y;       ///< [tokens * choices, h] x, write
    address y_scale; ///< [tokens * choices] f32, write if x == i8
    uint32_t tokens;
    uint32_t choices; ///< of a token
    uint32_t h;
    uint32_t reserved;
} moe_permute_params;

/// moe.combine { choices: u32, x: Dtype }: Adds what a token's choices computed, times their weights, and the residual.
/// flops: tokens * h * (2 * choices + 1)
typedef struct moe_combine_params {
    address y;        ///< [tokens * choices, h] x, read: rows by expert
    address places;   ///< [tokens, choices] u32, read, permutation
    address weights;  ///< [tokens, choices] f32, read, uniform(0, 1)
    address residual; ///< [tokens, h] x, read
    address out;      ///< [tokens, h] x, write
    uint32_t tokens;
    uint32_t h;
} moe_combine_params;

#endif
