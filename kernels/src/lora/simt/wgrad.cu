// Gradients of adapters on CUDA cores: dw = dy^T x, summed over the tokens, in f32, each part of a stack with its own
// columns of dy and x. A(i, r) = dy[r, i] and B(r, j) = x[r, j] are MN-major. A part of a range of the tokens is a
// layer of the grid: few tiles and many tokens, so each range is summed separately, and column_sum.finish adds these in
// order. Ranges are whole slices of 32 tokens, as on tensor cores.
// Bound: memory at the ranks that are common. Reads dy once. Source: see mod.rs; gemm/simt/mainloop.cuh.
#include "lora.h"
#include "gemm/simt/mainloop.cuh"

KERNEL(lora_wgrad_params) {
    const uint32_t index = blockIdx.z % p.parts, split = blockIdx.z / p.parts;
    const lora_part part = p.part[index];
    if (blockIdx.y * TILE >= part.width) return;
    const uint32_t slices = (p.m + 31) / 32;
    const uint32_t begin = slices * split / p.splits * 32, end = min(slices * (split + 1) / p.splits * 32, p.m);
    const uint32_t row = p.parts * p.columns;
    const Matrix a = {(const KEY_X*)p.dy + uint64_t(begin) * p.n + part.start, p.n, part.width, end - begin};
    const Matrix b = {(const KEY_X*)p.x + uint64_t(begin) * row + index * p.columns, row, p.columns, end - begin};
    const lora_part last = p.part[p.parts - 1];
    const bool direct = p.splits == 1, add = direct && ((const micro_scalars*)p.micro)->accumulate;
    const uint64_t first = direct ? part.row : uint64_t(last.row + last.width) * split + part.row;
    float* dw = (float*)(direct ? p.dw : p.partial) + first * p.columns;
    gemm<true, true>(a, b, [&](uint32_t i, uint32_t j, float sum) {
        const uint64_t at = uint64_t(i) * p.columns + j;
        dw[at] = add ? dw[at] + sum : sum;
    });
}
