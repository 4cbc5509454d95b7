// The machine: blocks one after the other, the threads of a block as fibers in an order that the seed decides, and
// every access looked at before it happens. The first thing that is wrong ends the launch.
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>

#include "counters.h"
#include "fiber.h"
#include "memory.h"

namespace simt {

inline constexpr uint32_t WARP = 32, ALL_LANES = 0xffffffffu;
// What `ldmatrix` makes of elements nobody wrote; `mma` may not multiply them.
inline constexpr uint16_t POISON = 0xffff;
// Shared addresses: dynamic memory from here on, and static variables by their distance from the first one.
inline constexpr uint32_t DYNAMIC_BASE = 1 << 10, STATIC_BASE = 1 << 24;

struct uint3 {
    uint32_t x, y, z;
};

// What threads wait for each other in. Where it stands in the source does not matter: not to the hardware either.
enum class Operation { Nothing, Barrier, WarpBarrier, Shuffle, ShuffleXor, Vote, LoadMatrix, LoadTransposed, Mma };

// A cp.async that no wait has covered.
struct Copy {
    char* to;
    const char* from;
    uint32_t bytes, valid_bytes, group;
    const void* pc;
};

struct Thread {
    Fiber fiber;
    uint32_t index = 0;
    bool done = false;
    Operation waits_in = Operation::Nothing;
    const void* waits_at = nullptr;
    std::vector<Copy> copies;
    uint32_t groups = 0; // committed

    uint32_t lane() const { return index % WARP; }
};

// Threads that wait for each other.
struct Meeting {
    std::vector<Thread*> here;
    void* operands[WARP];
};

struct Warp {
    Meeting meeting;
    uint32_t round = 0;
};

class Machine {
public:
    Report report = {};
    Launch launch;
    Thread* current = nullptr;
    uint32_t block = 0; // linear

    Machine(const Launch& launch) : launch(launch), random(launch.seed * 2 + 1) {
        const size_t bytes = launch.dynamic_shared_bytes;
        dynamic.reset(static_cast<char*>(aligned_alloc(1024, (bytes + 1023) / 1024 * 1024 + 1024)));
        for (uint64_t i = 0; i < launch.operand_count; i++)
            memories.emplace_back(Space::Operand, i, launch.operands[i]);
        shared_from = memories.size();
        for (uint64_t i = 0; i < launch.shared_count; i++) memories.emplace_back(Space::Static, i, launch.shared[i]);
        memories.emplace_back(Space::Dynamic, 0, Region{dynamic.get(), bytes, 1, 0});
    }

    void run() {
        const uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
        std::vector<uint32_t> order(blocks);
        for (uint32_t i = 0; i < blocks; i++) order[i] = i;
        for (uint32_t i = blocks; i > 1; i--) std::swap(order[i - 1], order[next_random() % i]);
        for (uint32_t i = 0; i < blocks && report.kind == Kind::Nothing; i++) run_block(order[i]);
    }

    uint3 block_index() const {
        const uint32_t *grid = launch.grid;
        return {block % grid[0], block / grid[0] % grid[1], block / grid[0] / grid[1]};
    }
    uint3 thread_index() const {
        const uint32_t *size = launch.block, i = current->index;
        return {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
    }
    char* dynamic_shared() const { return dynamic.get(); }

    // ---- memory ---------------------------------------------------------------------------------------------------

    Event event(const Thread& thread, Action action, const void* pc) const {
        return {pc, block, uint16_t(thread.index), uint8_t(action), 0, round, warps[thread.index / WARP].round};
    }

    // Looks at an access of a kernel before it happens.
    void access(const void* at, uint64_t bytes, Action action, const void* pc) {
        const char* p = static_cast<const char*>(at);
        if (current->fiber.owns(p)) return;
        if (action == Action::Read && p >= launch.constants.base &&
            p + bytes <= launch.constants.base + launch.constants.bytes)
            return;
        access(*current, p, bytes, action, pc);
        if (counters)
            count(*current, traffic_of(find(p)->space == Space::Operand, action == Action::Read), p, bytes, pc);
    }

    void access(const Thread& thread, const char* p, uint64_t bytes, Action action, const void* pc) {
        const Event now = event(thread, action, pc);
        Memory* memory = find(p);
        if (!memory || uint64_t(p - memory->region.base) + bytes > memory->region.bytes)
            fail(Kind::OutOfBounds, p, bytes, now);
        if (action != Action::Read && !memory->region.writable) fail(Kind::ReadOnly, p, bytes, now);
        memory->each(p, bytes, [&](Cell& cell) {
            Event before;
            const Kind kind = action == Action::Read ? read(cell, now, before) : write(cell, now, before);
            if (kind != Kind::Nothing) fail(kind, p, bytes, now, before);
        });
    }

    // What an access costs is asked of some launches.
    void count(const Thread& thread, Traffic traffic, const char* p, uint64_t bytes, const void* pc) {
        if (counters) counters->access(warp_number(thread), thread.lane(), traffic, p, bytes, pc);
    }

    void aligned(const char* p, uint64_t bytes, Action action, const void* pc) {
        if (uintptr_t(p) % bytes != 0) fail(Kind::Misaligned, p, bytes, event(*current, action, pc));
    }

    [[noreturn]] void fail(Kind kind, const char* p, uint64_t bytes, const Event& now, const Event& before = {}) {
        report = {kind, Space::None, 0, 0, bytes, as_access(now), as_access(before)};
        if (const Memory* memory = nearest(p)) {
            report.space = memory->space, report.index = memory->index;
            report.offset = p - memory->region.base;
        }
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
        wait(block_meeting, threads.size(), Operation::Barrier, pc, [&](Meeting&) {
            round++;
            for (Thread* thread : threads)
                if (counters && thread->lane() == 0) counters->meet(warp_number(*thread));
        });
    }

    // All lanes of the warp meet at one instruction, give their operands, and one of them does the work of all.
    template <typename Operands, typename Work>
    void with_warp(Operation operation, uint32_t mask, Operands& operands, const void* pc, Work work) {
        if (mask != ALL_LANES) fail(Kind::PartialWarp, nullptr, 0, event(*current, Action::Barrier, pc));
        Meeting& meeting = warps[current->index / WARP].meeting;
        meeting.operands[current->lane()] = &operands;
        wait(meeting, WARP, operation, pc, [&](Meeting& all) {
            Operands* of_lanes[WARP];
            for (uint32_t i = 0; i < WARP; i++) of_lanes[i] = static_cast<Operands*>(all.operands[i]);
            work(of_lanes);
            if (counters) counters->meet(warp_number(*current));
        });
    }

    Warp& warp() { return warps[current->index / WARP]; }
    Thread& lane(uint32_t i) { return *threads[current->index / WARP * WARP + i]; }

    // ---- asynchronous copies ----------------------------------------------------------------------------------------

    void copy(uint32_t shared, const char* from, uint32_t bytes, uint32_t valid_bytes, const void* pc) {
        char* to = shared_pointer(shared);
        aligned(to, bytes, Action::Copy, pc);
        if (valid_bytes > 0) {
            aligned(from, bytes, Action::Read, pc);
            access(*current, from, valid_bytes, Action::Read, pc);
            count(*current, Traffic::Copy, from, valid_bytes, pc);
        }
        access(*current, to, bytes, Action::Copy, pc);
        count(*current, Traffic::SharedCopy, to, bytes, pc);
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
    uint64_t warp_number(const Thread& thread) const { return uint64_t(block) << 32 | thread.index / WARP; }

    struct Free {
        void operator()(char* p) const { free(p); }
    };
    std::unique_ptr<char, Free> dynamic;
    std::vector<Memory> memories;
    Memory* recent = nullptr; // where an access was last
    size_t shared_from;
    std::vector<Thread*> threads, ready;
    std::vector<Warp> warps;
    Meeting block_meeting;
    uint32_t round = 0;
    jmp_buf scheduler;
    uint64_t random;

    // Marsaglia's xorshift64*.
    uint32_t next_random() {
        random ^= random >> 12, random ^= random << 25, random ^= random >> 27;
        return random * 0x2545f4914f6cdd1dull >> 32;
    }

    void run_block(uint32_t index);

    static Access as_access(const Event& event) {
        return {event.pc, Action(event.action), event.block, event.thread, 0};
    }

    Memory* find(const char* p) {
        if (recent && recent->holds(p)) return recent;
        for (Memory& memory : memories)
            if (memory.holds(p)) return recent = &memory;
        return nullptr;
    }

    // The memory an address was probably meant for: none that is further than a page away.
    const Memory* nearest(const char* p) const {
        const Memory* best = nullptr;
        int64_t least = 4096;
        for (const Memory& memory : memories) {
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
            ready.insert(ready.end(), meeting.here.begin(), meeting.here.end());
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

// The fibers of this system thread. One that has run a thread to its end runs another, of this launch or the next;
// a fault leaves some in the middle, and ends them all.
inline std::vector<std::unique_ptr<Thread>>& pool() {
    thread_local std::vector<std::unique_ptr<Thread>> all;
    return all;
}

inline void thread_body() {
    for (;;) {
        machine->launch.entry(machine->launch.params);
        machine->current->done = true;
        machine->leave();
    }
}

inline void Machine::run_block(uint32_t index) {
    block = index;
    round = 0;
    for (size_t i = shared_from; i < memories.size(); i++) {
        memories[i].reset();
        memset(memories[i].region.base, POISON & 0xff, memories[i].region.bytes);
    }
    const uint32_t count = launch.block[0] * launch.block[1] * launch.block[2];
    while (pool().size() < count) {
        pool().push_back(std::make_unique<Thread>());
        pool().back()->fiber.start(thread_body);
    }
    threads.clear();
    warps.assign((count + WARP - 1) / WARP, Warp());
    block_meeting.here.clear();
    for (uint32_t i = 0; i < count; i++) {
        Thread& thread = *pool()[i];
        thread.index = i, thread.done = false, thread.waits_in = Operation::Nothing, thread.groups = 0;
        thread.copies.clear();
        threads.push_back(&thread);
    }
    ready = threads;
    while (!ready.empty()) {
        std::swap(ready[next_random() % ready.size()], ready.back());
        current = ready.back();
        ready.pop_back();
        current->fiber.enter(scheduler);
        if (report.kind != Kind::Nothing) return;
    }
    // Nobody can go on: all are done, or some wait for one that is not coming.
    const auto waits = [](Thread* thread) { return !thread->done; };
    const auto waiting = std::find_if(threads.begin(), threads.end(), waits);
    if (waiting == threads.end()) return;
    const auto elsewhere = [&](Thread* thread) { return thread->done || thread->waits_in != (*waiting)->waits_in; };
    const auto other = std::find_if(threads.begin(), threads.end(), elsewhere);
    divergence(**waiting, (*waiting)->waits_at, other == threads.end() ? **waiting : **other);
}

} // namespace simt
