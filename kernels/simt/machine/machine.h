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
// What `ldmatrix` makes of uninitialized elements; `mma` may not multiply them.
inline constexpr uint16_t POISON = 0xffff;
// What uninitialized registers hold (-ftrivial-auto-var-init=pattern): as float or bf16, -1.7e38.
inline constexpr uint32_t UNWRITTEN = 0xfefefefe;
// Accesses after which a thread that has not waited for others meanwhile is taken to wait for a word in a loop.
inline constexpr uint32_t ENDLESS = 1 << 24;
// Shared addresses: dynamic memory from here on, and static variables by their distance from the first one. In a cluster,
// those of the block of rank r are CLUSTER_BASE * (r + 1) further.
inline constexpr uint32_t DYNAMIC_BASE = 1 << 10, STATIC_BASE = 1 << 24, CLUSTER_BASE = 1 << 26;
// 32-bit registers of a multiprocessor, and how many threads' shares are a multiple of.
inline constexpr uint32_t REGISTER_FILE = 65536, REGISTER_UNIT = 8;

inline float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t as_bits(float value) { return __builtin_bit_cast(uint32_t, value); }

struct uint3 {
    uint32_t x, y, z;
};

// The 128-byte swizzle: of the 16-byte chunks of 128 bytes, chunk i is where chunk i ^ (address / 128 % 8) would be.
inline uint32_t swizzled(uint32_t shared) { return shared ^ (shared >> 7 & 7) << 4; }

class Machine {
public:
    Report report = {};
    // The first read of shared memory that nobody had written. Whoever writes it later names the barrier that is missing.
    Report early = {};
    Launch launch;
    Thread* current = nullptr;
    std::unique_ptr<Cluster> cluster; // that runs
    Block* block = nullptr;           // of it

    Machine(const Launch& launch)
        : launch(launch), random(launch.seed * 2 + 1), threads(launch.block[0] * launch.block[1] * launch.block[2]),
          slots(threads + warps() + MEMORY_BARRIERS) {
        for (uint64_t i = 0; i < launch.operand_count; i++)
            operands.emplace_back(Space::Operand, i, launch.operands[i]);
    }

    void run();

    // What is wrong with the launch. An early read is the cause of what follows from it, but for a write that races with such a
    // read, and for a barrier that some threads did not reach.
    const Report& found() const {
        const bool same = report.space == early.space && report.index == early.index && report.owner == early.owner;
        const bool explains = report.kind == Kind::Divergence || (report.kind == Kind::Race && same);
        return early.kind == Kind::Nothing || explains ? report : early;
    }

    uint3 block_index() const {
        const uint32_t *grid = launch.grid, i = block->index;
        return {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
    }
    uint3 thread_index() const {
        const uint32_t *size = launch.block, i = current->index;
        return {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
    }
    char* dynamic_shared() const { return block->dynamic.get(); }
    uint32_t warps() const { return (threads + WARP - 1) / WARP; }

    // ---- memory ---------------------------------------------------------------------------------------------------

    Event event(const Thread& thread, Action action, const void* pc) const {
        const int32_t place = place_of(pc);
        if (launch.by_clocks) return event(thread, action, pc, thread.slot, thread.epoch);
        return {place, block->index, thread.index, uint32_t(action), any.releases, block->round,
                block->warps[thread.index / WARP].round};
    }

    // One that has a slot of its own.
    Event event(const Thread& thread, Action action, const void* pc, uint32_t slot, uint32_t epoch) const {
        return {place_of(pc), block->index, thread.index, uint32_t(action), 0, epoch, slot};
    }

    // Looks at an access of a kernel before it happens.
    void access(const void* at, uint64_t bytes, Action action, const void* pc) {
        const char* p = static_cast<const char*>(at);
        if (current->fiber.owns(p)) {
            if (!current->registers.empty()) [[unlikely]]
                touch_registers(p, bytes, action, pc);
            return;
        }
        if (action == Action::Read && p >= launch.constants.base &&
            p + bytes <= launch.constants.base + launch.constants.bytes)
            return;
        if (++current->accesses > ENDLESS) spin(p, pc);
        access(*current, p, bytes, action, pc);
        if (counters) [[unlikely]]
            count_plain(p, bytes, action, pc);
    }

    void access(const Thread& thread, const char* p, uint64_t bytes, Action action, const void* pc) {
        Memory* memory = find(p);
        const bool reads = action == Action::Read, plain = reads || action == Action::Write;
        if (reads && memory && memory->constant() && memory->holds(p + bytes - 1)) return;
        const Event now = event(thread, action, pc);
        if (plain && !launch.by_clocks && memory && (reads || memory->region.writable))
            if (Cell* cell = memory->only(p, bytes); cell && settle(*cell, now, reads)) return;
        access(*block, memory, thread, now, p, bytes);
    }

    // The same of memory that may be another block's.
    void access(Block& owner, Memory* memory, const Thread& thread, const Event& now, const char* p, uint64_t bytes) {
        if (!memory || uint64_t(p - memory->region.base) + bytes > memory->region.bytes)
            fail(Kind::OutOfBounds, p, bytes, now, {}, &owner);
        const Action action = Action(now.action);
        const bool reads = action == Action::Read || action == Action::Acquire || action == Action::Arrive;
        if (!reads && !memory->region.writable) fail(Kind::ReadOnly, p, bytes, now);
        if (memory->constant()) return;
        const auto look = [&](const auto& order) {
            memory->each(p, bytes, [&](Cell& cell, Event* readers) {
                Event before;
                Event* reader = readers ? &readers[thread.index / WARP] : nullptr;
                const Kind kind = reads ? read(cell, reader, now, order, before)
                                        : write(cell, readers, memory->readers_count(), now, order, before);
                if (kind == Kind::Unwritten && memory->space != Space::Operand && !launch.by_clocks) {
                    if (early.kind == Kind::Nothing) early = described(kind, p, bytes, now, before, &owner);
                    remember(cell, reader, now);
                } else if (kind != Kind::Nothing) {
                    fail(kind, p, bytes, now, before, &owner);
                }
            });
        };
        if (launch.by_clocks) {
            look([&](const Event& earlier) { return order_of_clocks(earlier, thread, now.is_async()); });
        } else {
            look([&](const Event& earlier) { return ordered(earlier, now, block->heard) ? Kind::Nothing : Kind::Race; });
        }
    }

    // What is wrong with an access by a thread after an earlier one of anybody.
    Kind order_of_clocks(const Event& earlier, const Thread& thread, bool is_async) const {
        if (!earlier.happened()) return Kind::Nothing;
        if (earlier.block / launch.cluster != block->index / launch.cluster) return Kind::Race;
        const auto knows = [&](const Clock& clock) { return clock && (*clock)[earlier.slot()] >= earlier.epoch(); };
        if (earlier.slot() == thread.warp_slot) return thread.wgmma_done >= earlier.epoch() ? Kind::Nothing : Kind::Race;
        const bool own = earlier.slot() == thread.slot;
        if (!own && !knows(thread.known.all)) return Kind::Race;
        if (!is_async || earlier.is_async()) return Kind::Nothing;
        const bool fenced = own ? thread.fenced_epoch >= earlier.epoch() : knows(thread.known.fenced);
        return fenced ? Kind::Nothing : Kind::Unfenced;
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

    [[noreturn]] void fail(Kind kind, const char* p, uint64_t bytes, const Event& now, const Event& before = {},
                           const Block* owner = nullptr) {
        blame(kind, p, bytes, now, before, owner);
        leave_for_good();
    }
    [[noreturn]] void fail(Kind kind, const void* pc) { fail(kind, nullptr, 0, event(*current, Action::Barrier, pc)); }

    // The current thread gives way to others.
    void leave() { current->fiber.leave(scheduler); }

    // It runs no further.
    [[noreturn]] void leave_for_good() {
        for (;;) leave();
    }

    // A row of `ldmatrix`. Reading what is uninitialized is no fault before it is used.
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
        const char* base = dynamic_shared();
        if (p >= base && p <= base + launch.dynamic_shared_bytes) return DYNAMIC_BASE + (p - base);
        return STATIC_BASE + (p - launch.shared[0].base);
    }
    char* shared_pointer(uint32_t address) const {
        if (address < STATIC_BASE) return dynamic_shared() + int64_t(address) - DYNAMIC_BASE;
        if (launch.shared_count == 0 || address >= CLUSTER_BASE) return nullptr;
        return launch.shared[0].base + (address - STATIC_BASE);
    }

    // ---- threads that meet ------------------------------------------------------------------------------------------

    void sync_block(const void* pc) {
        wait(block->rendezvous, block->threads.size(), Operation::Barrier, pc, [&](Rendezvous&) {
            block->round++;
            if (launch.by_clocks) share_knowledge(block->rendezvous.here);
            for (uint32_t i = 0; counters && i < block->warps.size(); i++) counters->meet(block->index, i);
        });
    }

    // What a barrier of a warp does once all lanes are there.
    void sync_warp() {
        warp().round++;
        if (launch.by_clocks) share_knowledge(warp().rendezvous.here);
    }

    // All lanes of the warp meet at one instruction, give their operands, and one of them does the work of all.
    template <typename Operands, typename Work>
    void with_warp(Operation operation, uint32_t mask, Operands& operands, const void* pc, Work work) {
        if (mask != ALL_LANES) fail(Kind::PartialWarp, pc);
        with<WARP>(warp().rendezvous, operation, operands, pc, work);
    }

    // The same of a warpgroup.
    template <typename Operands, typename Work>
    void with_warpgroup(Operation operation, Operands& operands, const void* pc, Work work) {
        if (threads % WARPGROUP != 0) fail(Kind::Unsupported, pc);
        if (block->warpgroups.empty()) block->warpgroups.resize(threads / WARPGROUP);
        with<WARPGROUP>(block->warpgroups[current->index / WARPGROUP], operation, operands, pc, work);
    }

    Warp& warp() { return block->warps[current->index / WARP]; }
    Thread& lane(uint32_t i) { return *block->threads[current->index / WARP * WARP + i]; }

    // ---- blocks that wait for each other ------------------------------------------------------------------------------

    // Before a word is read. It says the same as before until somebody writes it: a thread that looks again waits.
    void acquire(const char* word, const void* pc) {
        if (launch.by_clocks) fail(Kind::Unsupported, pc); // they order clusters, and clocks are of one
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
        if (launch.by_clocks) fail(Kind::Unsupported, pc);
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

    // After an atomic operation has changed a word: whoever looks again and again may go on.
    void changed() {
        if (!any.word) return;
        any.word = nullptr;
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
        find(to)->each(to, bytes, [](Cell& cell, Event*) { cell.under_way = true; });
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
            find(copy.to)->each(copy.to, copy.bytes,
                                [&](Cell& cell, Event*) { cell.under_way = false, cell.write = now; });
        }
        copies.erase(std::remove_if(copies.begin(), copies.end(), covered), copies.end());
    }

    // ---- memory barriers, bulk copies and clusters: hopper.cc --------------------------------------------------------

    void init_barrier(uint32_t shared, uint32_t arrivals, const void* pc);
    void announce_barriers();
    void arrive(uint32_t shared, uint32_t bytes, const void* pc);
    bool try_wait(uint32_t shared, uint32_t parity, const void* pc);
    void sync_named(uint32_t number, uint32_t threads, const void* pc);
    void fence_proxy();
    void copy_box(uint32_t shared, const TensorMap* map, int32_t x, int32_t y, uint32_t barrier, uint32_t blocks,
                  const void* pc);
    void send(uint32_t shared, const uint32_t* words, uint32_t count, uint32_t barrier, const void* pc);
    void arrive_at_cluster(const void* pc);
    void wait_for_cluster(const void* pc);
    void set_registers(uint32_t registers, bool more, const void* pc);

    // ---- wgmma: warpgroup.cc -----------------------------------------------------------------------------------------

    void touch_registers(const char* p, uint64_t bytes, Action action, const void* pc);
    void use_registers(const char* begin, const char* end, bool accumulators, const void* pc);
    const char* read_chunk(uint32_t shared, uint32_t first_warp, uint32_t of_warps, const void* pc);
    void wait_wgmma(uint32_t pending);

private:
    std::vector<Memory> operands;
    Memory* recent = nullptr; // where an access was last
    std::vector<std::unique_ptr<Cluster>> waiting, ended;
    std::map<const char*, Flag> flags;
    Flag any = {nullptr}; // of all flags together
    jmp_buf scheduler;
    uint64_t random;
    const uint32_t threads, slots; // of a block
    Joins joined;
    bool in_fiber = false;

    friend void thread_body();

    // Marsaglia's xorshift64*.
    uint32_t next_random() {
        random ^= random >> 12, random ^= random << 25, random ^= random >> 27;
        return random * 0x2545f4914f6cdd1dull >> 32;
    }

    void begin(uint32_t index);
    void begin(Block& one, uint32_t index);
    void activate(Block& one);
    void advance();
    bool run_ready();
    bool stuck();
    void end();
    void end(Block& one);
    void thread_ended();

    // ---- what only launches that are ordered by clocks need ----------------------------------------------------------

    size_t all_slots() const { return size_t(slots) * launch.cluster; }
    uint32_t slot_of(const Block& owner, uint32_t of_block) const { return owner.rank * slots + of_block; }

    // A thread tells what it knows; what it does from now on is not among it.
    void tell(JoinedKnowledge& joined, Thread& thread) {
        joined.add(thread.known, all_slots());
        joined.add(thread.slot, thread.epoch, thread.fenced_epoch, all_slots());
        if (thread.wgmma_done > 0) joined.add(thread.warp_slot, thread.wgmma_done, 0, all_slots());
        thread.epoch++;
    }
    void hear(Thread& thread, const Knowledge& known) {
        thread.known.all = joined(thread.known.all, known.all);
        thread.known.fenced = joined(thread.known.fenced, known.fenced);
    }
    void share_knowledge(const std::vector<Thread*>& all) {
        JoinedKnowledge joined;
        for (Thread* thread : all) tell(joined, *thread);
        const Knowledge known = joined.finish();
        for (Thread* thread : all) thread->known = known;
    }

    // A shared address, of this block or another one of the cluster.
    struct Place {
        Block* owner;
        char* p;
    };
    Place place_at(uint32_t shared, const void* pc) {
        const uint32_t rank = shared / CLUSTER_BASE;
        if (rank > launch.cluster) fail(Kind::OutOfBounds, pc);
        Block& owner = rank == 0 ? *block : *cluster->blocks[rank - 1];
        const uint32_t own = shared % CLUSTER_BASE;
        if (own < STATIC_BASE) return {&owner, owner.dynamic.get() + int64_t(own) - DYNAMIC_BASE};
        return {&owner, shared_pointer(own)};
    }
    // Where the bytes of a shared address are now.
    char* bytes_at(const Place& place);
    Memory* memory_at(const Place& place) {
        for (Memory& memory : place.owner->shared)
            if (memory.holds(place.p)) return &memory;
        return nullptr;
    }
    MemoryBarrier& barrier_at(uint32_t shared, Action action, const void* pc);
    void visit(Block& owner, const Event& event);
    void try_to_pass(MemoryBarrier& barrier, const Event& by);
    void pass_cluster_barrier();
    void start_transfer(const Place& place, std::vector<char> data, MemoryBarrier& barrier, Action action, const void* pc);
    void deliver();
    void grant_registers();
    void forget(Thread& thread);

    Flag& flag_at(const char* word) { return flags.try_emplace(word, Flag{word}).first->second; }

    // Whether an access that a release has told of came before on every schedule.
    bool knows(const Event& told, const Event& now) const {
        return std::any_of(block->heard.begin(), block->heard.end(), [&](const Edge& edge) {
            return edge.told.releases == told.releases && edge.heard.before(now);
        });
    }

    void wait_release(const Flag& flag, const void* pc) {
        current->flag = &flag, current->seen = flag.releases;
        current->waits_in = Operation::Semaphore, current->waits_at = pc;
        leave();
    }

    void blame(Kind kind, const char* p, uint64_t bytes, const Event& now, const Event& before,
               const Block* owner = nullptr) {
        report = described(kind, p, bytes, now, before, owner);
    }

    Report described(Kind kind, const char* p, uint64_t bytes, const Event& now, const Event& before, const Block* owner) {
        if (!owner) owner = block;
        Report of = {kind, Space::None, 0, 0, bytes, owner == block ? 0 : owner->index + 1ull, as_access(now),
                     as_access(before)};
        if (const Memory* memory = nearest(p, *owner)) {
            of.space = memory->space, of.index = memory->index;
            of.offset = p - memory->region.base;
        }
        return of;
    }

    const char* entry() const { return reinterpret_cast<const char*>(launch.entry); }

    int32_t place_of(const void* pc) const { return pc ? static_cast<const char*>(pc) - entry() : 0; }

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

    // The memory an address was probably meant for: none that is further than a page away. What is as near to an operand is
    // its guard (`execute.rs`), whatever lies behind that.
    const Memory* nearest(const char* p, const Block& owner) const {
        for (const Memory& memory : owner.shared)
            if (memory.holds(p)) return &memory;
        const Memory* best = nullptr;
        for (const std::vector<Memory>* memories : {&operands, &owner.shared}) {
            int64_t least = 4096;
            for (const Memory& memory : *memories) {
                const int64_t below = memory.region.base - p, above = 1 - below - int64_t(memory.region.bytes);
                const int64_t distance = std::max<int64_t>(0, std::max(below, above));
                if (distance < least) least = distance, best = &memory;
            }
            if (best) break;
        }
        return best;
    }

    template <uint32_t lanes, typename Operands, typename Work>
    void with(Rendezvous& rendezvous, Operation operation, Operands& operands, const void* pc, Work work) {
        rendezvous.operands[current->index % lanes] = const_cast<void*>(static_cast<const void*>(&operands));
        wait(rendezvous, lanes, operation, pc, [&](Rendezvous& all) {
            Operands* of_lanes[lanes];
            for (uint32_t i = 0; i < lanes; i++) of_lanes[i] = static_cast<Operands*>(all.operands[i]);
            work(of_lanes);
            if (counters) counters->meet(block->index, current->index / WARP);
        });
    }

    // It waits until another thread wakes it.
    void sleep(Operation operation, const void* pc) {
        current->waits_in = operation, current->waits_at = pc;
        leave();
    }
    void wake(Block& owner, Thread& thread) {
        thread.waits_in = Operation::Nothing;
        owner.ready.push_back(&thread);
    }

    template <typename Work>
    void wait(Rendezvous& rendezvous, size_t count, Operation operation, const void* pc, Work work) {
        if (!rendezvous.here.empty() && rendezvous.here[0]->waits_in != operation) diverge(*current, pc, *rendezvous.here[0]);
        current->waits_in = operation;
        current->waits_at = pc;
        rendezvous.here.push_back(current);
        if (rendezvous.here.size() == count) {
            work(rendezvous);
            for (Thread* thread : rendezvous.here) thread->waits_in = Operation::Nothing;
            block->ready.insert(block->ready.end(), rendezvous.here.begin(), rendezvous.here.end());
            rendezvous.here.clear();
        }
        leave();
    }

    // One thread waits where another, which it waits for, does not.
    void divergence(const Thread& waits, const void* pc, const Thread& other) {
        const Action action = other.done ? Action::Exit : Action::Barrier;
        report = {Kind::Divergence, Space::None, 0, 0, 0, 0, as_access(event(waits, Action::Barrier, pc)),
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
