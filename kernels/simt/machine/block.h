// A cluster, its blocks, warps and threads, and what they wait for each other in. Most clusters are one block.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>

#include "clock.h"
#include "fiber.h"
#include "memory.h"

namespace simt {

inline constexpr uint32_t WARP = 32, WARPGROUP = 128;
// Memory barriers and named barriers that a block may have.
inline constexpr uint32_t MEMORY_BARRIERS = 32, NAMED_BARRIERS = 16;

// What threads wait for each other in. Where it stands in the source does not matter: not to the hardware either.
enum class Operation {
    Nothing,
    Barrier,
    WarpBarrier,
    Shuffle,
    ShuffleXor,
    Vote,
    LoadMatrix,
    LoadTransposed,
    StoreMatrix,
    Mma,
    Semaphore,
    NamedBarrier,
    ClusterBarrier,
    MemoryBarrier,
    Wgmma,
    SetRegisters,
    Registers,
};

// A cp.async that no wait has covered.
struct Copy {
    char* to;
    const char* from;
    uint32_t bytes, valid_bytes, group;
    const void* pc;
};

// Registers that wgmma has used: a thread's variables of which it knows the addresses.
struct Registers {
    const char *begin, *end;
    uint32_t group;    // the last that uses them
    bool accumulators; // or fragments of A
    bool under_way;
    bool touched; // by the thread, since its last wgmma.fence
    const void* pc;
};

// A word that blocks tell each other something with.
struct Flag {
    const char* word;
    std::vector<Event> told = {}; // by its last release: the release itself, and what its block was told before
    uint32_t releases = 0;
};

struct MemoryBarrier;

struct Thread {
    Fiber fiber;
    uint32_t index = 0;
    bool done = false;
    Operation waits_in = Operation::Nothing;
    const void* waits_at = nullptr;
    std::vector<Copy> copies;
    uint32_t groups = 0;        // committed
    uint32_t accesses = 0;      // since it was entered
    const Flag* flag = nullptr; // the last one it looked at
    uint32_t seen = 0;          // releases of it until then

    // Where launches are ordered by clocks.
    uint32_t slot = 0, warp_slot = 0;
    uint32_t epoch = 1;        // releases of its own, and one
    uint32_t fenced_epoch = 0; // the one of its last proxy fence
    Knowledge known;
    MemoryBarrier* barrier = nullptr; // that it waits for
    uint32_t parity = 0;
    bool at_cluster_barrier = false; // has arrived there and not waited
    bool wgmma_fenced = false;       // it has executed a wgmma.fence
    uint32_t wgmma_groups = 0;        // of wgmma, committed
    uint32_t wgmma_done = 0;          // of these, waited for
    std::vector<Registers> registers;

    uint32_t lane() const { return index % WARP; }
    bool awaits_release() const { return waits_in == Operation::Semaphore && seen == flag->releases; }
    bool is_released() const { return waits_in == Operation::Semaphore && seen != flag->releases; }
};

// Threads that wait for each other.
struct Rendezvous {
    std::vector<Thread*> here;
    void* operands[WARPGROUP];
};

// The same, at a barrier that has a number.
struct NamedBarrier {
    Rendezvous rendezvous;
    uint32_t threads = 0;
};

struct Warp {
    Rendezvous rendezvous;
    uint32_t round = 0;
    uint32_t registers = 0; // a thread may use
    uint32_t wanted = 0;    // and waits for
};

struct Block;

// An mbarrier object.
struct MemoryBarrier {
    Block* block = nullptr;
    char* word = nullptr;
    uint32_t slot = 0;                  // in clocks
    uint32_t arrivals = 0, pending = 0; // of a phase, and missing in this one
    int64_t bytes = 0;          // expected and not arrived
    uint32_t phase = 0;
    uint32_t transfers = 0; // on their way to it
    uint32_t late = 0;      // threads that a phase has freed and that have not looked yet
    bool announced = false; // fence.mbarrier_init
    Event last;             // what it heard of last
    JoinedKnowledge joined;
    Knowledge passed; // with the last phase
};

// A bulk copy or remote store under way.
struct Transfer {
    Block* to;
    char* place;
    std::vector<char> data;
    MemoryBarrier* barrier;
    Event event; // of the thread that started it
};

// A block that has begun.
struct Block {
    struct Free {
        void operator()(char* p) const { free(p); }
    };

    uint32_t index = 0; // linear
    uint32_t rank = 0;  // in its cluster
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<Thread*> ready;
    std::vector<Warp> warps;
    Rendezvous rendezvous;
    uint32_t round = 0;
    std::unique_ptr<char, Free> dynamic;
    std::vector<Memory> shared; // static variables, and dynamic memory last
    std::vector<char> contents; // of static variables, while another block runs
    std::vector<Edge> heard;

    std::vector<Rendezvous> warpgroups;
    NamedBarrier named[NAMED_BARRIERS];
    std::vector<std::unique_ptr<MemoryBarrier>> barriers;
    uint32_t free_registers = 0;
    std::vector<Event> visits; // the last access to its shared memory by each other block
    JoinedKnowledge ending;          // what its threads knew when they ended
    uint32_t live = 0;         // threads that have not ended

    bool can_go_on() const {
        return std::any_of(threads.begin(), threads.end(), [](const auto& thread) { return thread->is_released(); });
    }
};

struct Cluster {
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<Transfer> transfers;
    // Its barrier.
    uint32_t arrived = 0, phase = 0;
    JoinedKnowledge joined;
    Knowledge passed;

    bool can_go_on() const {
        return std::any_of(blocks.begin(), blocks.end(), [](const auto& block) { return block->can_go_on(); });
    }
};

} // namespace simt
