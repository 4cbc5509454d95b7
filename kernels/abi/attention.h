#ifndef PRECAST_ATTENTION_H
#define PRECAST_ATTENTION_H
#include "types.h"

/* qkv: [batch, seq_len, (heads + 2 * kv_heads) * d]; a row holds all query heads, then keys, then values. */
typedef struct attention_fwd_params {
    address qkv;
    address o;   /* [batch, seq_len, heads * d] */
    address lse; /* [batch, heads, seq_len] f32: log-sum-exp of the scaled scores */
    uint32_t batch;
    uint32_t seq_len;
    uint32_t heads;
    uint32_t kv_heads;
    float scale;
    uint32_t reserved;
} attention_fwd_params;

typedef struct attention_delta_params {
    address o;     /* [batch, seq_len, heads * d] */
    address d_o;   /* [batch, seq_len, heads * d] */
    address delta; /* [batch, heads, seq_len] f32 */
    uint32_t batch;
    uint32_t seq_len;
    uint32_t heads;
    uint32_t reserved;
} attention_delta_params;

typedef struct attention_bwd_params {
    address qkv;
    address d_o;   /* [batch, seq_len, heads * d] */
    address lse;   /* [batch, heads, seq_len] f32 */
    address delta; /* [batch, heads, seq_len] f32: row sums of o * d_o */
    address dqkv;  /* laid out as qkv */
    uint32_t batch;
    uint32_t seq_len;
    uint32_t heads;
    uint32_t kv_heads;
    float scale;
    uint32_t reserved;
} attention_bwd_params;

#endif
