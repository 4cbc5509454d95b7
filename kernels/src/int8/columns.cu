// Quantizes columns to int8, with the results of quantize.cu on the transpose. A CTA has a strip of neighboring
// columns. Four threads share 128 rows of two of them, 32 rows each: of the seven steps of a Walsh-Hadamard transform
// of 128 five stay within a thread, and two threads store whole sectors together where rows are a multiple of 32. The
// columns' largest values come first; going back from the last rows to the first, those that are no longer in registers
// are loaded and rotated again.
// Bound: latency of L2. Two strips read each sector of x, and again what registers do not hold; one byte a value is
// written.
// Sources: as quantize.cu.
#include "int8.h"
#include "quantize.cuh"

enum : uint32_t {
    WIDTH = 8, // values quantized together
    COLUMNS = VARIANT_COLUMNS, // of a strip
    PAIRS = COLUMNS / 2,
    OF_THREAD = 32, // rows
    HALF = 16,      // of them, stored together
    SEGMENT = 128,  // rows of four threads
    ROWS = KEY_N,
    LOWEST_BIT = ROWS & (~ROWS + 1),
    ROTATION = LOWEST_BIT < 128 ? LOWEST_BIT : 128, // rows rotated together
    SEGMENTS = (ROWS + SEGMENT - 1) / SEGMENT,
    AT_A_TIME = VARIANT_THREADS / PAIRS / (SEGMENT / OF_THREAD), // segments at a time
    ROUNDS = (SEGMENTS + AT_A_TIME - 1) / AT_A_TIME,
};

// Two neighboring elements of a row.
struct alignas(2 * sizeof(KEY_X)) Pair {
    KEY_X v[2];
};

// 16 values as one store.
struct alignas(16) int8x16_t {
    int8x8_t eights[2];
};

// A thread's rows of two columns.
struct Share {
    float v[2][OF_THREAD / WIDTH][WIDTH];

    __device__ __forceinline__ float& at(uint32_t column, uint32_t row) { return v[column][row / WIDTH][row % WIDTH]; }

    // Loads the rows from `x` on, of which there are `left`; zeros beyond them.
    __device__ __forceinline__ void load(const Pair* x, uint32_t pairs, uint32_t left) {
        pairs = opaque(pairs);  // addresses of rows take no registers between rounds
        Pair packed[OF_THREAD]; // all loads are in flight together
#pragma unroll
        for (uint32_t row = 0; row < OF_THREAD; row++, x += pairs) {
            packed[row] = {};
            if (row / HALF * HALF < left) packed[row] = *x;
        }
#pragma unroll
        for (uint32_t row = 0; row < OF_THREAD; row++)
#pragma unroll
            for (uint32_t column = 0; column < 2; column++) at(column, row) = to_float(packed[row].v[column]);
    }

    // Rotates in Sylvester's order, times 1 / ROTATION.
    __device__ __forceinline__ void rotate() {
        const uint32_t quarter = threadIdx.x / PAIRS;
        const float first = quarter & 1 ? -1.0f : 1.0f, second = quarter & 2 ? -1.0f : 1.0f;
#pragma unroll
        for (uint32_t column = 0; column < 2; column++) {
#pragma unroll
            for (uint32_t row = 0; row < OF_THREAD; row += 2)
                butterfly(at(column, row), at(column, row + 1), 1.0f / ROTATION);
#pragma unroll
            for (uint32_t stride = 2; stride < OF_THREAD && stride < ROTATION; stride *= 2)
#pragma unroll
                for (uint32_t row = 0; row < OF_THREAD; row++)
                    if (!(row & stride)) butterfly(at(column, row), at(column, row + stride));
#pragma unroll
            for (uint32_t row = 0; row < OF_THREAD; row++) {
                float& value = at(column, row);
                if (ROTATION >= 64) value = fma_rn(value, first, shuffle_xor(value, PAIRS));
                if (ROTATION >= 128) value = fma_rn(value, second, shuffle_xor(value, 2 * PAIRS));
            }
        }
    }

    __device__ __forceinline__ uint32_t largest(uint32_t column) const {
        uint32_t result = 0;
#pragma unroll
        for (uint32_t i = 0; i < OF_THREAD / WIDTH; i++) {
            const uint32_t other = largest_magnitude(v[column][i]);
            result = result > other ? result : other;
        }
        return result;
    }

    // Stores a column's values; `q` is where its segment begins, of which so many rows are `left`. Two threads exchange
    // halves, so that what they store together is whole sectors.
    __device__ __forceinline__ void store(uint32_t column, uint8_t* q, uint32_t left, const RowScale& scale) const {
        const uint32_t quarter = threadIdx.x / PAIRS % (SEGMENT / OF_THREAD), odd = quarter & 1;
        int8x16_t halves[2] = {};
        if (scale.inverse != 0.0f)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++)
                halves[i] = {quantize(v[column][2 * i], scale), quantize(v[column][2 * i + 1], scale)};
        int8x16_t sent = odd ? halves[0] : halves[1];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t& four = sent.eights[i / 2].fours[i % 2];
            four = shuffle_xor(four, PAIRS);
        }
        const uint32_t row = (quarter - odd) * OF_THREAD + odd * HALF;
        if (row < left) *reinterpret_cast<int8x16_t*>(q + row) = odd ? sent : halves[0];
        if (row + OF_THREAD < left) *reinterpret_cast<int8x16_t*>(q + row + OF_THREAD) = odd ? halves[1] : sent;
    }
};

// Returns the largest values of two columns over their threads. All threads call it once.
__device__ __forceinline__ void column_max(uint32_t (&values)[2]) {
    __shared__ uint32_t of_warps[VARIANT_THREADS / WARP][COLUMNS];
    const uint32_t lane = threadIdx.x % WARP, pair = threadIdx.x % PAIRS;
#pragma unroll
    for (uint32_t column = 0; column < 2; column++) {
        uint32_t& value = values[column];
#pragma unroll
        for (uint32_t lane_mask = PAIRS; lane_mask < WARP; lane_mask *= 2) {
            const uint32_t other = shuffle_xor(value, lane_mask);
            value = value > other ? value : other;
        }
        if (lane < PAIRS) of_warps[threadIdx.x / WARP][2 * pair + column] = value;
    }
    sync_block();
#pragma unroll
    for (uint32_t warp = 0; warp < VARIANT_THREADS / WARP; warp++)
#pragma unroll
        for (uint32_t column = 0; column < 2; column++) {
            const uint32_t other = of_warps[warp][2 * pair + column];
            values[column] = values[column] > other ? values[column] : other;
        }
}

KERNEL(int8_columns_params) {
    const uint32_t column = blockIdx.x * COLUMNS + threadIdx.x % PAIRS * 2;
    const uint32_t own = threadIdx.x / PAIRS * OF_THREAD;
    const Pair* x = (const Pair*)p.x + column / 2;
    const uint32_t rows = column < p.columns ? ROWS : 0;

    Share share;
    uint32_t largest[2] = {};
    RowScale scales[2];
    // To the last round and back: one copy of the code stays in the instruction cache.
#pragma unroll 1
    for (uint32_t step = 0; step < 2 * ROUNDS - 1; step++) {
        const uint32_t round = step < ROUNDS ? step : 2 * (ROUNDS - 1) - step;
        const uint32_t row = round * (AT_A_TIME * SEGMENT) + own, segment = row / SEGMENT * SEGMENT;
        share.load(x + uint64_t(row) * (p.columns / 2), p.columns / 2, row < rows ? rows - row : 0);
        share.rotate();
        if (step < ROUNDS)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                const uint32_t other = share.largest(i);
                largest[i] = largest[i] > other ? largest[i] : other;
            }
        if (step + 1 == ROUNDS) {
            column_max(largest);
            for (uint32_t i = 0; i < 2; i++) scales[i] = row_scale<ROTATION>(largest[i]);
        }
        if (step + 1 < ROUNDS) continue;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            uint8_t* q = (uint8_t*)p.q + uint64_t(column + i) * ROWS + segment;
            share.store(i, q, segment < rows ? rows - segment : 0, scales[i]);
            if (row == 0 && rows > 0) ((float*)p.scale)[column + i] = scales[i].scale;
        }
    }
}
