// SwiGLU to rotated int8: int8/quantize.cu of swiglu/fwd.cu's y, and y if the backward pass reads it. One pass over
// memory: a row stays in registers from its load to the store of its values. y is rounded to its stored dtype, then
// quantized.
// Bound: memory. Reads gate and up once, writes one byte a value (and y).
// Sources: Shazeer, "GLU Variants Improve Transformer", 2020; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_N };
#include "early.cuh"
#include "gate.cuh"
#include "int8/row.cuh"
#include "swiglu.h"

KERNEL(swiglu_fwd_params) {
    begin_early();
    const uint32_t token = row_of_thread(p.tokens);
    const bool valid = token < p.tokens;
    const KEY_X* row = (const KEY_X*)p.gate_up + uint64_t(token) * 2 * ROW;
    Vector gate[PER_THREAD], up[PER_THREAD]; // all loads are in flight together
    load_row(gate, row, valid);
    load_row(up, row + ROW, valid);
    RowOut out((KEY_X*)p.y + uint64_t(token) * ROW, valid);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        float y[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) y[i] = gate[j][i] * gate_sigmoid(gate[j][i]) * up[j][i];
        out.store<true>(j, y);
    }
    out.finish(p, token);
}
