// Tensor cores: `ldmatrix`, `mma.sync`. Fragments are laid out as in the PTX ISA, "Matrix Fragments for mma.m16n8k16".
#include "machine.h"

namespace simt {
namespace {

// What a lane brings to `ldmatrix`: where its registers go, and the row it gives the address of.
struct MatrixRow {
    uint32_t* r;
    const char* row;
};

// And to `mma`.
struct Fragments {
    float* d;
    const uint32_t *a, *b;
    const float* c;
};

// The same of s8.
struct IntegerFragments {
    int32_t* d;
    const uint32_t *a, *b;
    const int32_t* c;
};

float from_bf16(uint32_t bits) { return as_float(bits << 16); }
uint16_t half_of(uint32_t pair, uint32_t upper) { return pair >> 16 * upper; }

} // namespace
} // namespace simt

using namespace simt;

extern "C" {

void simt_load_matrix(uint32_t* r, uint32_t shared, bool transposed) {
    const void* pc = __builtin_return_address(0);
    MatrixRow own = {r, machine->shared_pointer(shared)};
    machine->aligned(own.row, 16, Action::Read, pc);
    const Operation operation = transposed ? Operation::LoadTransposed : Operation::LoadMatrix;
    machine->with_warp(operation, ALL_LANES, own, pc, [&](MatrixRow** lanes) {
        uint16_t elements[4][8][8];
        for (uint32_t i = 0; i < WARP; i++) {
            machine->read_row(machine->lane(i), lanes[i]->row, elements[i / 8][i % 8], pc);
            machine->count(machine->lane(i), Traffic::LoadMatrix, lanes[i]->row, sizeof(elements[0][0]), pc);
        }
        for (uint32_t i = 0; i < WARP; i++)
            for (uint32_t matrix = 0; matrix < 4; matrix++) {
                const uint32_t group = i / 4, first = i % 4 * 2;
                const auto at = [&](uint32_t e) {
                    const uint16_t(&rows)[8][8] = elements[matrix];
                    return uint32_t(transposed ? rows[first + e][group] : rows[group][first + e]);
                };
                lanes[i]->r[matrix] = at(0) | at(1) << 16;
            }
    });
}

void simt_store_matrix(const uint32_t* r, uint32_t shared) {
    const void* pc = __builtin_return_address(0);
    struct Lane {
        const uint32_t* r;
        char* row;
    } own = {r, machine->shared_pointer(shared)};
    machine->aligned(own.row, 16, Action::Write, pc);
    machine->with_warp(Operation::StoreMatrix, ALL_LANES, own, pc, [&](Lane** lanes) {
        for (uint32_t i = 0; i < WARP; i++) {
            uint32_t words[4]; // of row i % 8 of matrix i / 8: lanes 4 * row .. hold it
            for (uint32_t w = 0; w < 4; w++) words[w] = lanes[i % 8 * 4 + w]->r[i / 8];
            machine->access(machine->lane(i), lanes[i]->row, sizeof(words), Action::Write, pc);
            memcpy(lanes[i]->row, words, sizeof(words));
        }
    });
}

void simt_mma(float* d, const uint32_t* a, const uint32_t* b, const float* c) {
    const void* pc = __builtin_return_address(0);
    const auto check = [&](bool written, Kind kind) {
        if (!written) machine->fail(kind, nullptr, 0, machine->event(*machine->current, Action::Read, pc));
    };
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t pair = i < 4 ? a[i] : b[i - 4];
        check(pair != UNWRITTEN, Kind::UnwrittenRegister);
        check(half_of(pair, 0) != POISON && half_of(pair, 1) != POISON, Kind::Unwritten);
    }
    for (uint32_t i = 0; i < 4; i++) check(as_bits(c[i]) != UNWRITTEN, Kind::UnwrittenRegister);
    Fragments own = {d, a, b, c};
    machine->with_warp(Operation::Mma, ALL_LANES, own, pc, [](Fragments** lanes) {
        float left[16][16], right[16][8];
        for (uint32_t i = 0; i < WARP; i++)
            for (uint32_t e = 0; e < 2; e++) {
                const uint32_t group = i / 4, k = i % 4 * 2 + e;
                for (uint32_t r = 0; r < 4; r++)
                    left[group + r % 2 * 8][k + r / 2 * 8] = from_bf16(half_of(lanes[i]->a[r], e));
                for (uint32_t r = 0; r < 2; r++) right[k + r * 8][group] = from_bf16(half_of(lanes[i]->b[r], e));
            }
        float sums[16][8] = {};
        for (uint32_t row = 0; row < 16; row++)
            for (uint32_t k = 0; k < 16; k++)
                for (uint32_t column = 0; column < 8; column++) sums[row][column] += left[row][k] * right[k][column];
        for (uint32_t i = 0; i < WARP; i++)
            for (uint32_t e = 0; e < 4; e++)
                lanes[i]->d[e] = lanes[i]->c[e] + sums[i / 4 + e / 2 * 8][i % 4 * 2 + e % 2];
    });
}

void simt_mma_s8(int32_t* d, const uint32_t* a, const uint32_t* b, const int32_t* c) {
    const void* pc = __builtin_return_address(0);
    const auto check = [&](bool written, Kind kind) {
        if (!written) machine->fail(kind, nullptr, 0, machine->event(*machine->current, Action::Read, pc));
    };
    for (uint32_t i = 0; i < 6; i++) {
        const uint32_t four = i < 4 ? a[i] : b[i - 4];
        check(four != UNWRITTEN, Kind::UnwrittenRegister);
        check(four != (uint32_t(POISON) << 16 | POISON), Kind::Unwritten); // a pair may be -1, -1
    }
    for (uint32_t i = 0; i < 4; i++) check(uint32_t(c[i]) != UNWRITTEN, Kind::UnwrittenRegister);
    IntegerFragments own = {d, a, b, c};
    machine->with_warp(Operation::Mma, ALL_LANES, own, pc, [](IntegerFragments** lanes) {
        int32_t left[16][32], right[32][8];
        for (uint32_t i = 0; i < WARP; i++)
            for (uint32_t e = 0; e < 4; e++) {
                const uint32_t group = i / 4, k = i % 4 * 4 + e;
                for (uint32_t r = 0; r < 4; r++)
                    left[group + r % 2 * 8][k + r / 2 * 16] = int8_t(lanes[i]->a[r] >> 8 * e);
                for (uint32_t r = 0; r < 2; r++) right[k + r * 16][group] = int8_t(lanes[i]->b[r] >> 8 * e);
            }
        for (uint32_t i = 0; i < WARP; i++)
            for (uint32_t e = 0; e < 4; e++) {
                int32_t sum = 0;
                for (uint32_t k = 0; k < 32; k++) sum += left[i / 4 + e / 2 * 8][k] * right[k][i % 4 * 2 + e % 2];
                lanes[i]->d[e] = lanes[i]->c[e] + sum;
            }
    });
}

} // extern "C"
