// SwiGLU backward with quantization: the result of swiglu/bwd.cu, and int8/quantize.cu of it. One pass over memory: a
// row of gate and up gradients stays in registers, a thread has the same columns of both. They are whole rotation
// blocks of 128, so that none has columns of both. The stored values are quantized.
// Bound: memory. Reads gate, up and dy once, writes both gradients and one byte a value.
// Sources: Shazeer, "GLU Variants Improve Transformer", 2020; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_N }; // columns of either
#include "early.cuh"
#include "gate.cuh"
#include "int8/row.cuh"
#include "swiglu.h"

KERNEL(swiglu_bwd_params) {
    begin_early();
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP];
    const uint32_t token = row_of_thread(p.tokens);
    const bool valid = token < p.tokens;
    const KEY_X* row = (const KEY_X*)p.gate_up + uint64_t(token) * 2 * ROW;
    Vector gate[PER_THREAD], up[PER_THREAD], dy[PER_THREAD]; // all loads are in flight together
    load_row(gate, row, valid);
    load_row(up, row + ROW, valid);
    load_row(dy, (const KEY_X*)p.dy + uint64_t(token) * ROW, valid);
    KEY_X* dgate_up = (KEY_X*)p.dgate_up + uint64_t(token) * 2 * ROW;
    RowOut dgate(dgate_up, valid), dup(dgate_up + ROW, valid);
#pragma unroll
    for (uint32_t j = 0; j < PER_THREAD; j++) {
        float dg[WIDTH], du[WIDTH];
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            const float s = gate_sigmoid(gate[j][i]), ds = dy[j][i] * s;
            dg[i] = ds * up[j][i] * gate_slope(gate[j][i], s);
            du[i] = ds * gate[j][i];
        }
        dgate.store(j, dg);
        dup.store(j, du);
    }
    const uint32_t of_gate = dgate.share.rotate(), of_up = dup.share.rotate();
    const uint32_t largest = row_max(of_gate > of_up ? of_gate : of_up, scratch);
    if (!valid) return;
    const RowScale scale = row_scale<ROTATION>(largest);
    if (threadIdx.x % VARIANT_ROW_THREADS == 0) ((float*)p.scale)[token] = scale.scale;
    uint8_t* q = (uint8_t*)p.q + uint64_t(token) * 2 * ROW;
    dgate.share.store(q, scale);
    dup.share.store(q + ROW, scale);
}
