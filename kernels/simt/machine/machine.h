// The machine: blocks that take turns where one waits for another, their threads as fibers in an order that the seed
// decides, and every access looked at before it happens. The first thing that is wrong ends the launch.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <map>

#include "block.h"
#include "counters.h"

namespace simt {

inline constexpr uint32_t ALL_LANES = 0xffffffffu;
// What `ldmatrix` makes of elements nobody wrote; `mma` may not multiply them.
inline constexpr uint16_t POISON = 0xffff;
// What registers hold that nobody wrote (-ftrivial-auto-var-init=pattern): as float or bf16, -1.7e38.
inline constexpr uint32_t UNWRITTEN = 0xfefefefe;
// Accesses after which a thread that has not waited for others meanwhile is taken to wait for a word in a loop.
inline constexpr uint32_t ENDLESS = 1 << 24;
// Shared addresses: dynamic memory from here on, and static variables by their distance from the first one.
inline constexpr uint32_t DYNAMIC_BASE = 1 << 10, STATIC_BASE = 1 << 24;

struct uint3 {
    uint32_t x, y, z;
};

class Machine {
public:
    Report report = {};
    Launch launch;
    Thread* current = nullptr;
    std::unique_ptr<Block> block; // that runs

    Machine(const Launch& launch) : launch(launch), random(launch.seed * 2 + 1) {
        const size_t bytes = launch.dynamic_shared_bytes;
        dynamic.reset(static_cast<char*>(aligned_alloc(1024, (bytes + 1023) / 1024 * 1024 + 1024)));
        for (uint64_t i = 0; i < launch.operand_count; i++)
            operands.emplace_back(Space::Operand, i, launch.operands[i]);
    }

    void run();

    uint3 block_index() const {
        const uint32_t *grid = launch.grid, i = block->index;
        return {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
    }
    uint3 thread_index() const {
        const uint32_t *size = launch.block, i = current->index;
        return {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
    }
    char* dynamic_shared() const { return dynamic.get(); }

    // ---- memory ---------------------------------------------------------------------------------------------------

    Event event(const Thread& thread, Action action, const void* pc) const {
        const int32_t place = pc ? static_cast<const char*>(pc) - entry() : 0;
        return {place, block->index, thread.index, uint32_t(action), any.releases, block->round,
                block->warps[thread.index / WARP].round};
    }

    // Looks at an access of a kernel before it happens.
    void access(const void* at, uint64_t bytes, Action action, const void* pc) {
        const char* p = static_cast<const char*>(at);
        if (current->fiber.owns(p)) return;
        if (action == Action::Read && p >= launch.constants.base &&
            p + bytes <= launch.constants.base + launch.constants.bytes)
            return;
        if (++current->accesses > ENDLESS) spin(p, pc);
        access(*current, p, bytes, action, pc);
        if (counters) [[unlikely]]
            count_plain(p, bytes, action, pc);
    }

    void access(const Thread& thread, const char* p, uint64_t bytes, Action action, const void* pc) {
        const Event now = event(thread, action, pc);
        Memory* memory = find(p);
        if (!memory || uint64_t(p - memory->region.base) + bytes > memory->region.bytes)
            fail(Kind::OutOfBounds, p, bytes, now);
        const bool reads = action == Action::Read || action == Action::Acquire;
        if (!reads && !memory->region.writable) fail(Kind::ReadOnly, p, bytes, now);
        memory->each(p, bytes, [&](Cell& cell) {
            Event before;
            const Kind kind = reads ? read(cell, now, block->heard, before) : write(cell, now, block->heard, before);
            if (kind != Kind::Nothing) fail(kind, p, bytes, now, before);
        });
    }

    // What an access costs is asked of few launches: apart, so that the others do not pay.
    [[gnu::noinline, gnu::cold]] void count_plain(const char* p, uint64_t bytes, Action action, const void* pc) {
        count(*current, traffic_of(find(p)->space == Space::Operand, action == Action::Read), p, bytes, pc);
    }
    void count(const Thread& thread, Traffic traffic, const char* p, uint64_t bytes, const void* pc,
               const char* to = nullptr) {
        if (counters) counters->access(block->index, thread.index, traffic, p, bytes, pc, to);
    }

    void aligned(const char* p, uint64_t bytes, Action action, const void* pc) {
        if (uintptr_t(p) % bytes != 0) fail(Kind::Misaligned, p, bytes, event(*current, action, pc));
    }

    [[noreturn]] void fail(Kind kind, const char* p, uint64_t bytes, const Event& now, const Event& before = {}) {
        blame(kind, p, bytes, now, before);
        leave_for_good();
    }

    // The current thread gives way to others.
    void leave() { current->fiber.leave(scheduler); }

    // It runs no further.
    [[noreturn]] void leave_for_good() {
        for (;;) leave();
    }

    // A row of `ldmatrix`. Reading what nobody wrote is no fault before it is used.
    void read_row(const Thread& thread, const char* row, uint16_t (&elements)[8], const void* pc) {
        bool unwritten[8] = {}, any = false;
        if (Memory* memory = find(row); memory && memory->holds(row + sizeof(elements) - 1))
            for (uint32_t e = 0; e < 8; e++) {
                const Cell& cell = memory->cell(row + 2 * e);
                unwritten[e] = !cell.written && !cell.under_way;
                any |= unwritten[e];
            }
        if (!any) access(thread, row, sizeof(elements), Action::Read, pc);
        for (uint32_t e = 0; e < 8; e++) {
            if (any && !unwritten[e]) access(thread, row + 2 * e, 2, Action::Read, pc);
            elements[e] = POISON;
            if (!unwritten[e]) memcpy(&elements[e], row + 2 * e, 2);
        }
    }

    // A shared address, and back.
    uint32_t shared_address(const char* p) const {
        const char* base = dynamic.get();
        if (p >= base && p <= base + launch.dynamic_shared_bytes) return DYNAMIC_BASE + (p - base);
        return STATIC_BASE + (p - launch.shared[0].base);
    }
    char* shared_pointer(uint32_t address) const {
        if (address < STATIC_BASE) return dynamic.get() + int64_t(address) - DYNAMIC_BASE;
        return launch.shared[0].base + (address - STATIC_BASE);
    }

    // ---- threads that meet ------------------------------------------------------------------------------------------

    void sync_block(const void* pc) {
        wait(block->meeting, block->threads.size(), Operation::Barrier, pc, [&](Meeting&) {
            block->round++;
            for (uint32_t i = 0; counters && i < block->warps.size(); i++) counters->meet(block->index, i);
        });
    }

    // All lanes of the warp meet at one instruction, give their operands, and one of them does the work of all.
    template <typename Operands, typename Work>
    void with_warp(Operation operation, uint32_t mask, Operands& operands, const void* pc, Work work) {
        if (mask != ALL_LANES) fail(Kind::PartialWarp, nullptr, 0, event(*current, Action::Barrier, pc));
        Meeting& meeting = warp().meeting;
        meeting.operands[current->lane()] = &operands;
        wait(meeting, WARP, operation, pc, [&](Meeting& all) {
            Operands* of_lanes[WARP];
            for (uint32_t i = 0; i < WARP; i++) of_lanes[i] = static_cast<Operands*>(all.operands[i]);
            work(of_lanes);
            if (counters) counters->meet(block->index, current->index / WARP);
        });
    }

    Warp& warp() { return block->warps[current->index / WARP]; }
    Thread& lane(uint32_t i) { return *block->threads[current->index / WARP * WARP + i]; }

    // ---- blocks that wait for each other ------------------------------------------------------------------------------

    // Before a word is read. It says the same as before until somebody writes it: a thread that looks again waits.
    void acquire(const char* word, const void* pc) {
        aligned(word, 4, Action::Acquire, pc);
        Flag& flag = flag_at(word);
        if (current->flag == &flag && current->seen == flag.releases) wait_release(flag, pc);
        access(*current, word, 4, Action::Acquire, pc);
        const Event now = event(*current, Action::Acquire, pc);
        for (const Event& told : flag.told)
            if (!knows(told, now)) block->heard.push_back({told, now});
        current->flag = &flag, current->seen = flag.releases;
    }

    // Before it is written.
    void release(const char* word, const void* pc) {
        aligned(word, 4, Action::Release, pc);
        access(*current, word, 4, Action::Release, pc);
        const Event now = event(*current, Action::Release, pc);
        Flag& flag = flag_at(word);
        flag.told = {now};
        for (const Edge& edge : block->heard)
            if (edge.heard.before(now)) flag.told.push_back(edge.told);
        flag.releases++;
        any.releases++;
    }

    // Looks at a word again and again, without a word to the machine: until anybody releases anything.
    void spin(const char* word, const void* pc) {
        current->accesses = 0;
        any.word = word;
        wait_release(any, pc);
    }

    // ---- asynchronous copies ----------------------------------------------------------------------------------------

    void copy(uint32_t shared, const char* from, uint32_t bytes, uint32_t valid_bytes, const void* pc) {
        char* to = shared_pointer(shared);
        aligned(to, bytes, Action::Copy, pc);
        if (valid_bytes > 0) {
            aligned(from, bytes, Action::Read, pc);
            access(*current, from, valid_bytes, Action::Read, pc);
            const bool past_l1 = bytes == 16; // `.cg` takes no other size, and no kernel copies 16 bytes with `.ca`
            count(*current, Traffic::Copy, from, valid_bytes, pc, past_l1 ? to : nullptr);
        }
        access(*current, to, bytes, Action::Copy, pc);
        find(to)->each(to, bytes, [](Cell& cell) { cell.under_way = true; });
        current->copies.push_back({to, from, bytes, valid_bytes, current->groups, pc});
    }

    // Data arrives as late as it may: now.
    void wait_copies(uint32_t pending) {
        std::vector<Copy>& copies = current->copies;
        const auto covered = [&](const Copy& copy) { return copy.group + pending < current->groups; };
        for (const Copy& copy : copies) {
            if (!covered(copy)) continue;
            memcpy(copy.to, copy.from, copy.valid_bytes);
            memset(copy.to + copy.valid_bytes, 0, copy.bytes - copy.valid_bytes);
            const Event now = event(*current, Action::Copy, copy.pc);
            find(copy.to)->each(copy.to, copy.bytes, [&](Cell& cell) { cell.under_way = false, cell.write = now; });
        }
        copies.erase(std::remove_if(copies.begin(), copies.end(), covered), copies.end());
    }

private:
    struct Free {
        void operator()(char* p) const { free(p); }
    };
    std::unique_ptr<char, Free> dynamic;
    std::vector<Memory> operands;
    Memory* recent = nullptr; // where an access was last
    std::vector<std::unique_ptr<Block>> waiting, ended;
    std::map<const char*, Flag> flags;
    Flag any = {nullptr}; // of all flags together
    jmp_buf scheduler;
    uint64_t random;

    // Marsaglia's xorshift64*.
    uint32_t next_random() {
        random ^= random >> 12, random ^= random << 25, random ^= random >> 27;
        return random * 0x2545f4914f6cdd1dull >> 32;
    }

    void begin(uint32_t index);
    void resume(size_t index);
    void advance();
    void put_aside();
    void end();

    Flag& flag_at(const char* word) { return flags.try_emplace(word, Flag{word}).first->second; }

    // Whether an access that a release has told of came before on every schedule.
    bool knows(const Event& told, const Event& now) const {
        return std::any_of(block->heard.begin(), block->heard.end(), [&](const Edge& edge) {
            return edge.told.releases == told.releases && edge.heard.before(now);
        });
    }

    void wait_release(const Flag& flag, const void* pc) {
        current->flag = &flag, current->seen = flag.releases;
        current->waits_in = Operation::Turn, current->waits_at = pc;
        leave();
    }

    void blame(Kind kind, const char* p, uint64_t bytes, const Event& now, const Event& before) {
        report = {kind, Space::None, 0, 0, bytes, as_access(now), as_access(before)};
        if (const Memory* memory = nearest(p)) {
            report.space = memory->space, report.index = memory->index;
            report.offset = p - memory->region.base;
        }
    }

    const char* entry() const { return reinterpret_cast<const char*>(launch.entry); }

    Access as_access(const Event& event) const {
        return {event.pc ? entry() + event.pc : nullptr, Action(event.action), event.block, event.thread, 0};
    }

    Memory* find(const char* p) {
        if (recent && recent->holds(p)) return recent;
        for (std::vector<Memory>* memories : {&operands, &block->shared})
            for (Memory& memory : *memories)
                if (memory.holds(p)) return recent = &memory;
        return nullptr;
    }

    // The memory an address was probably meant for: none that is further than a page away.
    const Memory* nearest(const char* p) {
        const Memory* best = nullptr;
        int64_t least = 4096;
        for (std::vector<Memory>* memories : {&operands, &block->shared})
            for (const Memory& memory : *memories) {
                const int64_t below = memory.region.base - p, above = 1 - below - int64_t(memory.region.bytes);
                const int64_t distance = std::max<int64_t>(0, std::max(below, above));
                if (distance < least) least = distance, best = &memory;
            }
        return best;
    }

    template <typename Work>
    void wait(Meeting& meeting, size_t count, Operation operation, const void* pc, Work work) {
        if (!meeting.here.empty() && meeting.here[0]->waits_in != operation) diverge(*current, pc, *meeting.here[0]);
        current->waits_in = operation;
        current->waits_at = pc;
        meeting.here.push_back(current);
        if (meeting.here.size() == count) {
            work(meeting);
            for (Thread* thread : meeting.here) thread->waits_in = Operation::Nothing;
            block->ready.insert(block->ready.end(), meeting.here.begin(), meeting.here.end());
            meeting.here.clear();
        }
        leave();
    }

    // One thread waits where another, which it waits for, does not.
    void divergence(const Thread& waits, const void* pc, const Thread& other) {
        const Action action = other.done ? Action::Exit : Action::Barrier;
        report = {Kind::Divergence, Space::None, 0, 0, 0, as_access(event(waits, Action::Barrier, pc)),
                  as_access(event(other, action, other.done ? nullptr : other.waits_at))};
    }
    [[noreturn]] void diverge(const Thread& waits, const void* pc, const Thread& other) {
        divergence(waits, pc, other);
        leave_for_good();
    }
};

// The one that runs on this system thread.
inline thread_local Machine* machine = nullptr;

} // namespace simt
