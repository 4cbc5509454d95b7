// A block, its warps and threads, and what they wait for each other in.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <memory>

#include "fiber.h"
#include "memory.h"

namespace simt {

inline constexpr uint32_t WARP = 32;

// What threads wait for each other in. Where it stands in the source does not matter: not to the hardware either.
enum class Operation { Nothing, Barrier, WarpBarrier, Shuffle, ShuffleXor, Vote, LoadMatrix, LoadTransposed, Mma, Turn };

// A cp.async that no wait has covered.
struct Copy {
    char* to;
    const char* from;
    uint32_t bytes, valid_bytes, group;
    const void* pc;
};

// A word that blocks tell each other something with.
struct Flag {
    const char* word;
    std::vector<Event> told = {}; // by its last release: the release itself, and what its block was told before
    uint32_t releases = 0;
};

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

    uint32_t lane() const { return index % WARP; }
    bool awaits_release() const { return waits_in == Operation::Turn && seen == flag->releases; }
    bool is_released() const { return waits_in == Operation::Turn && seen != flag->releases; }
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

// A block that has begun.
struct Block {
    uint32_t index = 0; // linear
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<Thread*> ready;
    std::vector<Warp> warps;
    Meeting meeting;
    uint32_t round = 0;
    std::vector<Memory> shared; // static variables and dynamic memory
    std::vector<char> contents; // of `shared`, while another block runs
    std::vector<Edge> heard;

    bool can_go_on() const {
        return std::any_of(threads.begin(), threads.end(), [](const auto& thread) { return thread->is_released(); });
    }
};

} // namespace simt
