// Rotary embedding of rows at positions of their own: to rotate.cuh each is a single token, whose table begins at its
// position. CTAs of a row are those of one y.
// Bound: latency. A step of decoding has few rows. See rotate.cuh.
#include "rope/rotate.cuh"
#include "rope_at.h"

KERNEL(rope_at_params) {
    const uint32_t row = blockIdx.y;
    const uint64_t angles = uint64_t(((const uint32_t*)p.position)[row]) * HALF * sizeof(float);
    rope_params token = {};
    token.x = p.x + uint64_t(row) * p.row_stride * sizeof(KEY_X);
    token.cos = p.cos + angles;
    token.sin = p.sin + angles;
    token.tokens = 1;
    token.seq_len = 1;
    token.heads = p.heads;
    token.row_stride = p.row_stride;
    rotate(token, 1.0f);
}
