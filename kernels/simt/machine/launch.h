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
    uint32_t cluster;         // blocks
    uint32_t resident_blocks; // that a multiprocessor must be able to hold: it bounds registers
    uint32_t by_clocks;       // whether accesses are ordered by clocks: the kernel has Hopper's instructions
    uint32_t reserved;
};

// What a tensor map holds here, in place of what the CUDA driver encodes: a matrix without gaps between its rows, and the
// box that is copied at a time. The twin is in src/execute.rs.
struct TensorMap {
    static constexpr uint64_t MAGIC = 0x70616d20736e6574;
    uint64_t magic;
    const char* base;
    uint32_t rows, columns, box_rows, box_columns, element_bytes;
    uint32_t reserved[23];
};
static_assert(sizeof(TensorMap) == 128);

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
    NotABarrier,
    Unannounced,
    OverArrival,
    Transaction,
    Unfenced,
    Accumulator,
    RegisterFence,
    Description,
    Gone,
    RegisterLimit,
    PartialCluster,
    Unsupported,
};

enum class Action : uint32_t {
    None, Read, Write, Copy, Barrier, Exit, Acquire, Release, Bulk, Wgmma, Send, Arrive, Atomic,
    Exchange, // an atomic one that reads nothing
};

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
    uint64_t owner;  // the block whose shared memory it is, and one, if another block's access
    Access now, before;
};

} // namespace simt
