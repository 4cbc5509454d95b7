#ifndef PRECAST_QK_NORM_H
#define PRECAST_QK_NORM_H
#include "types.h"

typedef struct qk_norm_fwd_params {
    address x;     /* [tokens, row_heads, d]: query and key heads normalised and rotated in place, the rest untouched */
    address raw;   /* [tokens, query_heads + key_heads, d], with keep: what they were */
    address gamma; /* [2, d]: of queries, of keys */
    address cos;   /* [seq_len, d / 2] f32 */
    address sin;   /* [seq_len, d / 2] f32 */
    float eps;
    uint32_t tokens;
    uint32_t seq_len;
    uint32_t query_heads;
    uint32_t key_heads; /* behind the query heads of a row */
    uint32_t row_heads;
} qk_norm_fwd_params;

typedef struct qk_norm_bwd_params {
    address dx;             /* [tokens, row_heads, d]: gradient of the rotated heads, replaced by that of raw */
    address raw;            /* [tokens, query_heads + key_heads, d], what the forward normalised */
    address gamma;          /* [2, d] */
    address cos;            /* [seq_len, d / 2] f32 */
    address sin;            /* [seq_len, d / 2] f32 */
    address dgamma_partial; /* [ceil(tokens / rows), 2, d] f32 */
    float eps;
    uint32_t tokens;
    uint32_t seq_len;
    uint32_t query_heads;
    uint32_t key_heads;
    uint32_t row_heads;
    uint32_t rows; /* tokens that share one partial */
    uint32_t reserved;
} qk_norm_bwd_params;

#endif
