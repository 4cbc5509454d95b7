// `wgmma`, a warpgroup's multiplication. Its operands in shared memory are read, and its sums are written, from when it is
// issued until a wait of its warp covers its group. Here it computes at once: nobody may look meanwhile.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
#include "machine.h"
#include "wgmma.h"

namespace simt {
namespace {

constexpr uint32_t ROWS = 64, DEPTH = 16, MOST_COLUMNS = 256, CHUNK = 8; // a chunk is 16 bytes
constexpr uint32_t ROW_BYTES = 128;

// What a `wgmma` multiplies, and what it is.
struct Matrices {
    float a[ROWS][DEPTH], b[DEPTH][MOST_COLUMNS], sum[ROWS][MOST_COLUMNS];
};

// Where an operand lies, in the 128-byte swizzle.
struct Descriptor {
    uint32_t start, leading, stride;

    static bool is_known(uint64_t bits) { return bits >> 62 == 1 && (bits >> 49 & 7) == 0; }
    explicit Descriptor(uint64_t bits)
        : start(uint32_t(bits & 0x3fff) << 4), leading(uint32_t(bits >> 16 & 0x3fff) << 4),
          stride(uint32_t(bits >> 32 & 0x3fff) << 4) {}

    // Eight elements: of a row, from a depth that is a multiple of eight.
    uint32_t along(uint32_t row, uint32_t depth) const {
        return swizzled(start + row / 8 * stride + row % 8 * ROW_BYTES + depth * 2);
    }
    // Of a depth, from a row that is a multiple of eight.
    uint32_t across(uint32_t row, uint32_t depth) const {
        return swizzled(start + row / 64 * leading + depth / 8 * stride + depth % 8 * ROW_BYTES + row % 64 * 2);
    }
};

// What elements hold is pairs of s8.
void add_integers(const Wgmma** lanes, const Matrices& matrices) {
    const auto byte = [](float pair, uint32_t e) { return int32_t(int8_t(as_bits(pair) >> (16 + 8 * e))); };
    for (uint32_t i = 0; i < WARPGROUP; i++)
        for (uint32_t n = 0; n < lanes[i]->columns / 2; n++) {
            const uint32_t row = i / WARP * 16 + i % WARP / 4 + n / 2 % 2 * 8, column = n / 4 * 8 + i % 4 * 2 + n % 2;
            int32_t& d = *reinterpret_cast<int32_t*>(lanes[i]->d[n]);
            int32_t sum = lanes[i]->add ? d : 0;
            for (uint32_t k = 0; k < DEPTH; k++)
                for (uint32_t e = 0; e < 2; e++) sum += byte(matrices.a[row][k], e) * byte(matrices.b[k][column], e);
            d = sum;
        }
}

} // namespace

// A thread reads or writes a register that it holds in a variable of its own.
void Machine::touch_registers(const char* p, uint64_t bytes, Action action, const void* pc) {
    for (Registers& own : current->registers) {
        if (p >= own.end || p + bytes <= own.begin) continue;
        if (own.under_way && (own.accumulators || action != Action::Read))
            fail(Kind::Accumulator, nullptr, 0, event(*current, action, pc), event(*current, Action::Wgmma, own.pc));
        own.touched |= own.accumulators || action != Action::Read;
    }
}

// A `wgmma` takes them, for the group that the thread commits next.
void Machine::use_registers(const char* begin, const char* end, bool accumulators, const void* pc) {
    const uint32_t group = current->wgmma_groups + 1;
    for (Registers& own : current->registers)
        if (own.begin == begin && own.end == end) {
            if (own.touched) fail(Kind::RegisterFence, nullptr, 0, event(*current, Action::Wgmma, pc));
            own.group = group, own.under_way = true, own.pc = pc;
            return;
        }
    current->registers.push_back({begin, end, group, accumulators, true, false, pc});
}

// Whether nobody writes what a `wgmma` reads until it is done: its bytes.
const char* Machine::read_chunk(uint32_t shared, uint32_t first_warp, uint32_t of_warps, const void* pc) {
    char* p = shared_pointer(shared);
    Memory* memory = find(p);
    const Thread* before = nullptr;
    for (uint32_t i = first_warp; i < first_warp + of_warps; i++) {
        const Thread& thread = *block->threads[i * WARP];
        const Event now = event(thread, Action::Wgmma, pc, thread.warp_slot, thread.wgmma_groups + 1);
        if (!memory || !memory->holds(p + 2 * CHUNK - 1)) fail(Kind::OutOfBounds, p, 2 * CHUNK, now);
        const bool same = before && before->known.all == thread.known.all && before->known.fenced == thread.known.fenced;
        memory->each(p, 2 * CHUNK, [&](Cell& cell, Event* readers) {
            Event other;
            const auto order = [&](const Event& earlier) {
                return same ? Kind::Nothing : order_of_clocks(earlier, thread, true);
            };
            const Kind kind = read(cell, &readers[i], now, order, other);
            if (kind != Kind::Nothing) fail(kind, p, 2 * CHUNK, now, other);
        });
        before = &thread;
    }
    return p;
}

// wgmma.wait_group: of the current thread's groups, all but `pending`.
void Machine::wait_wgmma(uint32_t pending) {
    if (current->wgmma_groups > pending)
        current->wgmma_done = std::max(current->wgmma_done, current->wgmma_groups - pending);
    for (Registers& own : current->registers) own.under_way &= own.group > current->wgmma_done;
}

// A thread ends.
void Machine::forget(Thread& thread) {
    for (const Registers& own : thread.registers)
        if (own.under_way && report.kind == Kind::Nothing)
            blame(Kind::Accumulator, nullptr, 0, event(thread, Action::Exit, nullptr), event(thread, Action::Wgmma, own.pc));
}

} // namespace simt

using namespace simt;

extern "C" {

void simt_hopper_wgmma(const Wgmma* wgmma, const void* pc) {
    Thread& own = *machine->current;
    const auto refuse = [&](Kind kind) { machine->fail(kind, nullptr, 0, machine->event(own, Action::Wgmma, pc)); };
    if (!own.wgmma_fenced) refuse(Kind::RegisterFence);
    const bool scaled = wgmma->plus_a != 1 || wgmma->plus_b != 1;
    const bool of_registers = wgmma->integers && wgmma->a_count > 0; // that no kernel needs
    if (scaled || of_registers || wgmma->columns % 8 != 0 || wgmma->columns > MOST_COLUMNS) refuse(Kind::Unsupported);
    if (!Descriptor::is_known(wgmma->b) || (wgmma->a_count == 0 && !Descriptor::is_known(wgmma->a_at)))
        refuse(Kind::Description);
    if (wgmma->columns / 2 + wgmma->a_count > machine->warp().registers) refuse(Kind::RegisterLimit);
    const uint32_t sums = wgmma->columns / 2;
    for (uint32_t i = 0; i < wgmma->a_count; i++) {
        const uint32_t pair = *wgmma->a[i];
        if (pair == UNWRITTEN) refuse(Kind::UnwrittenRegister);
        if ((pair & 0xffff) == POISON || pair >> 16 == POISON) refuse(Kind::Unwritten);
    }
    for (uint32_t i = 0; wgmma->add && i < sums; i++)
        if (as_bits(*wgmma->d[i]) == UNWRITTEN) refuse(Kind::UnwrittenRegister);

    machine->with_warpgroup(Operation::Wgmma, *wgmma, pc, [&](const Wgmma** lanes) {
        const Wgmma& first = *lanes[0];
        static thread_local const auto matrices = std::make_unique<Matrices>();
        auto& [a, b, sum] = *matrices;
        const uint32_t warp = machine->current->index / WARPGROUP * 4, columns = first.columns;
        for (uint32_t i = 1; i < WARPGROUP; i++) {
            const Wgmma& lane = *lanes[i];
            const bool same = lane.columns == columns && lane.add == first.add && lane.b == first.b && lane.a_at == first.a_at &&
                              lane.a_count == first.a_count && lane.a_across == first.a_across && lane.b_across == first.b_across;
            if (!same) refuse(Kind::Divergence);
        }
        const auto take = [&](uint32_t shared, uint32_t first_warp, uint32_t warps, auto put) {
            uint16_t elements[CHUNK];
            memcpy(elements, machine->read_chunk(shared, first_warp, warps, pc), sizeof(elements));
            for (uint32_t e = 0; e < CHUNK; e++) put(e, as_float(uint32_t(elements[e]) << 16));
        };
        if (first.a_count > 0) {
            for (uint32_t i = 0; i < WARPGROUP; i++)
                for (uint32_t r = 0; r < 4; r++)
                    for (uint32_t e = 0; e < 2; e++) {
                        const uint32_t pair = *lanes[i]->a[r];
                        a[i / 4 + i / WARP * 8 + r % 2 * 8][i % 4 * 2 + e + r / 2 * 8] =
                            as_float(e == 0 ? pair << 16 : pair & 0xffff0000u);
                    }
        } else {
            const Descriptor at(first.a_at);
            if (first.a_across) {
                for (uint32_t row = 0; row < ROWS; row += CHUNK)
                    for (uint32_t k = 0; k < DEPTH; k++)
                        take(at.across(row, k), warp + row / 16, 1, [&](uint32_t e, float value) { matrices->a[row + e][k] = value; });
            } else {
                for (uint32_t row = 0; row < ROWS; row++)
                    for (uint32_t k = 0; k < DEPTH; k += CHUNK)
                        take(at.along(row, k), warp + row / 16, 1, [&](uint32_t e, float value) { matrices->a[row][k + e] = value; });
            }
        }
        const Descriptor at(first.b);
        if (first.b_across) {
            for (uint32_t column = 0; column < columns; column += CHUNK)
                for (uint32_t k = 0; k < DEPTH; k++)
                    take(at.across(column, k), warp, 4, [&](uint32_t e, float value) { matrices->b[k][column + e] = value; });
        } else {
            for (uint32_t column = 0; column < columns; column++)
                for (uint32_t k = 0; k < DEPTH; k += CHUNK)
                    take(at.along(column, k), warp, 4, [&](uint32_t e, float value) { matrices->b[k + e][column] = value; });
        }
        if (first.integers) return add_integers(lanes, *matrices);
        for (uint32_t row = 0; row < ROWS; row++) {
            float* to = sum[row];
            for (uint32_t j = 0; j < columns; j++) to[j] = 0.0f;
            for (uint32_t k = 0; k < DEPTH; k++)
                for (uint32_t j = 0; j < columns; j++) to[j] += a[row][k] * b[k][j];
        }
        for (uint32_t i = 0; i < WARPGROUP; i++)
            for (uint32_t n = 0; n < columns / 2; n++) {
                const uint32_t row = i / WARP * 16 + i % WARP / 4 + n / 2 % 2 * 8, column = n / 4 * 8 + i % 4 * 2 + n % 2;
                float& d = *lanes[i]->d[n];
                d = first.add ? d + sum[row][column] : sum[row][column];
            }
    });
    const auto use = [&](auto* const* all, uint32_t count, bool accumulators) {
        const char* begin = reinterpret_cast<const char*>(all[0]);
        if (reinterpret_cast<const char*>(all[count - 1]) == begin + 4 * (count - 1))
            return machine->use_registers(begin, begin + 4 * count, accumulators, pc);
        for (uint32_t i = 0; i < count; i++) {
            begin = reinterpret_cast<const char*>(all[i]);
            machine->use_registers(begin, begin + 4, accumulators, pc);
        }
    };
    use(wgmma->d, sums, true);
    if (wgmma->a_count > 0) use(wgmma->a, wgmma->a_count, false);
}

void simt_hopper_wgmma_fence() {
    machine->current->wgmma_fenced = true;
    for (Registers& own : machine->current->registers) own.touched = false;
}
void simt_hopper_wgmma_commit() { machine->current->wgmma_groups++; }
void simt_hopper_wgmma_wait(uint32_t pending) { machine->wait_wgmma(pending); }

} // extern "C"
