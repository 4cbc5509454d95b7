// Quantizes columns to int8, with the results of quantize.cu on the transpose. A CTA has a strip of neighboring
// columns, a thread one rotation block of one of them at a time: it is rotated in registers, without a shuffle, and
// stored as whole vectors, while the lanes of a warp load neighboring columns. A column's largest value comes first;
// going back from the last blocks to the first, those that are no longer in registers are loaded and rotated again.
// Bound: memory. Reads x once and, of columns that registers do not hold, from L2 again; writes one byte a value.
// Sources: as quantize.cu.
#include "int8.h"
#include "quantize.cuh"

enum : uint32_t {
    WIDTH = 8, // values quantized together
    ROWS = KEY_N,
    LOWEST_BIT = ROWS & (~ROWS + 1),
    ROTATION = LOWEST_BIT < 128 ? LOWEST_BIT : 128, // rows rotated together
    BLOCKS = ROWS / ROTATION,
    AT_A_TIME = VARIANT_THREADS / VARIANT_COLUMNS, // blocks of a column
    ROUNDS = (BLOCKS + AT_A_TIME - 1) / AT_A_TIME,
};

// A rotation block of a column.
struct Block {
    float v[ROTATION / WIDTH][WIDTH];

    __device__ __forceinline__ float& at(uint32_t row) { return v[row / WIDTH][row % WIDTH]; }
};

// 16 values as one store.
struct alignas(16) int8x16_t {
    int8x8_t eights[2];
};

// Loads a block with first element `x`; zeros if not `valid`. Rotates it in Sylvester's order, times 1 / ROTATION.
__device__ __forceinline__ void load_rotated(Block& block, const KEY_X* x, uint32_t columns, bool valid) {
    columns = opaque(columns); // addresses of rows take no registers between rounds
    KEY_X packed[ROTATION];    // all loads are in flight together
#pragma unroll
    for (uint32_t row = 0; row < ROTATION; row++, x += columns) {
        packed[row] = {};
        if (valid) packed[row] = *x;
    }
#pragma unroll
    for (uint32_t row = 0; row < ROTATION; row++) block.at(row) = to_float(packed[row]);
#pragma unroll
    for (uint32_t row = 0; row < ROTATION; row += 2) butterfly(block.at(row), block.at(row + 1), 1.0f / ROTATION);
#pragma unroll
    for (uint32_t stride = 2; stride < ROTATION; stride *= 2)
#pragma unroll
        for (uint32_t row = 0; row < ROTATION; row++)
            if (!(row & stride)) butterfly(block.at(row), block.at(row + stride));
}

// Returns the largest value over the threads of a column. All threads of the CTA call it once.
__device__ __forceinline__ uint32_t column_max(uint32_t value) {
    __shared__ uint32_t scratch[VARIANT_THREADS / WARP][VARIANT_COLUMNS];
#pragma unroll
    for (uint32_t lane_mask = VARIANT_COLUMNS; lane_mask < WARP; lane_mask *= 2) {
        const uint32_t other = shuffle_xor(value, lane_mask);
        value = value > other ? value : other;
    }
    const uint32_t lane = threadIdx.x % WARP;
    if (lane < VARIANT_COLUMNS) scratch[threadIdx.x / WARP][lane] = value;
    sync_block();
#pragma unroll
    for (uint32_t warp = 0; warp < VARIANT_THREADS / WARP; warp++) {
        const uint32_t other = scratch[warp][threadIdx.x % VARIANT_COLUMNS];
        value = value > other ? value : other;
    }
    return value;
}

KERNEL(int8_columns_params) {
    const uint32_t column = blockIdx.x * VARIANT_COLUMNS + threadIdx.x % VARIANT_COLUMNS;
    const uint32_t own = threadIdx.x / VARIANT_COLUMNS;
    const KEY_X* x = (const KEY_X*)p.x + column;
    uint8_t* q = (uint8_t*)p.q + uint64_t(column) * ROWS;

    Block block;
    uint32_t largest = 0;
#pragma unroll 1
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t index = round * AT_A_TIME + own;
        load_rotated(block, x + uint64_t(index) * ROTATION * p.columns, p.columns, index < BLOCKS && column < p.columns);
#pragma unroll
        for (uint32_t i = 0; i < ROTATION / WIDTH; i++) {
            const uint32_t other = largest_magnitude(block.v[i]);
            largest = largest > other ? largest : other;
        }
    }
    const RowScale row = row_scale<ROTATION>(column_max(largest));
    if (column >= p.columns) return;
    if (own == 0) ((float*)p.scale)[column] = row.scale;
#pragma unroll 1
    for (uint32_t round = ROUNDS; round-- > 0;) {
        const uint32_t index = round * AT_A_TIME + own;
        if (index >= BLOCKS) continue;
        if (round != ROUNDS - 1) load_rotated(block, x + uint64_t(index) * ROTATION * p.columns, p.columns, true);
#pragma unroll
        for (uint32_t i = 0; i < ROTATION / WIDTH; i += 2) {
            int8x16_t values = {};
            if (row.inverse != 0.0f) values = {quantize(block.v[i], row), quantize(block.v[i + 1], row)};
            *reinterpret_cast<int8x16_t*>(q + index * ROTATION + i * WIDTH) = values;
        }
    }
}
