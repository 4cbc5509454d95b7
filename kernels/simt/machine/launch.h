// What passes between Rust and the machine: a launch to run, and the report of what is wrong with it.
// The twins in Rust are in src/launch.rs.
#pragma once
#include <stdint.h>

namespace simt {

// Memory a launch may touch: an operand, or a static shared variable.
struct Region {
    char* base;
    uint64_t bytes;
    uint32_t writable;
    uint32_t written; // before the launch
};

struct Launch {
    void (*entry)(const void* params);
    const void* params;
    uint32_t grid[3], block[3];
    uint64_t dynamic_shared_bytes;
    uint64_t seed;
    Region constants; // what the compiler put beside the code
    const Region* operands;
    uint64_t operand_count;
    const Region* shared; // static
    uint64_t shared_count;
};

enum class Kind : uint32_t {
    Nothing,
    OutOfBounds,
    ReadOnly,
    Misaligned,
    Unwritten,
    UnwrittenRegister,
    Race,
    UnderWay,
    Divergence,
    PartialWarp,
    Deadlock,
};

enum class Action : uint32_t { None, Read, Write, Copy, Barrier, Exit, Acquire, Release };

// Something a thread did.
struct Access {
    const void* pc;
    Action action;
    uint32_t block, thread;
    uint32_t reserved;
};

enum class Space : uint32_t { None, Operand, Static, Dynamic };

struct Report {
    Kind kind;
    Space space;
    uint64_t index;  // of the operand or static variable
    int64_t offset;  // from its start
    uint64_t bytes;  // of the access
    Access now, before;
};

} // namespace simt
