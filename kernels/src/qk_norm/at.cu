// RMSNorm and rotary embedding of the query and key heads of rows at positions of their own: to normalize.cuh each is a
// single token, whose table begins at its position. CTAs of a row are those of one y.
// Bound: latency. A step of decoding has few rows. See normalize.cuh.
#include "qk_norm/normalize.cuh"
#include "qk_norm_at.h"

KERNEL(qk_norm_at_params) {
    const uint32_t row = blockIdx.y;
    const uint64_t angles = uint64_t(((const uint32_t*)p.position)[row]) * HALF * sizeof(float);
    qk_norm_fwd_params token = {};
    token.x = p.x + uint64_t(row) * p.row_heads * KEY_D * sizeof(KEY_X);
    token.gamma = p.gamma;
    token.cos = p.cos + angles;
    token.sin = p.sin + angles;
    token.eps = p.eps;
    token.tokens = 1;
    token.seq_len = 1;
    token.query_heads = p.query_heads;
    token.key_heads = p.key_heads;
    token.row_heads = p.row_heads;
    normalize(token);
}
