// What kernels call: launches, warps and blocks, shared memory, copies, and the compiler's instrumentation.
// Compiled without instrumentation itself.
#include "machine.h"

using namespace simt;

#define HERE __builtin_return_address(0)

extern "C" {

// ---- launches -----------------------------------------------------------------------------------------------------

// `receive` gets what each instruction cost, if there is a receiver.
void simt_launch(const Launch* launch, Report* report, void (*receive)(void*, const Count*), void* receiver) {
    Counters counted;
    counters = receiver ? &counted : nullptr;
    Machine own(*launch);
    machine = &own;
    own.run();
    machine = nullptr;
    counters = nullptr;
    *report = own.found();
    for (const Count& count : counted.finish()) receive(receiver, &count);
}

uint3 simt_thread() { return machine->thread_index(); }
uint3 simt_block() { return machine->block_index(); }
uint3 simt_block_size() { return {machine->launch.block[0], machine->launch.block[1], machine->launch.block[2]}; }
uint3 simt_grid_size() { return {machine->launch.grid[0], machine->launch.grid[1], machine->launch.grid[2]}; }
char* simt_dynamic_shared() { return machine->dynamic_shared(); }
uint64_t __cvta_generic_to_shared(const void* p) { return machine->shared_address(static_cast<const char*>(p)); }

// ---- warps and blocks -----------------------------------------------------------------------------------------------

void __syncthreads() { machine->sync_block(HERE); }

void simt_sync_warp(uint32_t mask) {
    int nothing = 0;
    machine->with_warp(Operation::WarpBarrier, mask, nothing, HERE, [](int**) { machine->sync_warp(); });
}

static uint32_t shuffle(Operation operation, uint32_t mask, uint32_t value, uint32_t source, const void* pc) {
    struct Operands {
        uint32_t value, source, result;
    } own = {value, source % WARP, 0};
    machine->with_warp(operation, mask, own, pc, [](Operands** lanes) {
        for (uint32_t i = 0; i < WARP; i++) lanes[i]->result = lanes[lanes[i]->source]->value;
    });
    return own.result;
}
uint32_t simt_shuffle(uint32_t mask, uint32_t value, uint32_t lane) {
    return shuffle(Operation::Shuffle, mask, value, lane, HERE);
}
uint32_t simt_shuffle_xor(uint32_t mask, uint32_t value, uint32_t lanes) {
    return shuffle(Operation::ShuffleXor, mask, value, machine->current->lane() ^ lanes, HERE);
}

uint32_t simt_ballot(uint32_t mask, bool value) {
    struct Operands {
        bool value;
        uint32_t result;
    } own = {value, 0};
    machine->with_warp(Operation::Vote, mask, own, HERE, [](Operands** lanes) {
        uint32_t all = 0;
        for (uint32_t i = 0; i < WARP; i++) all |= uint32_t(lanes[i]->value) << i;
        for (uint32_t i = 0; i < WARP; i++) lanes[i]->result = all;
    });
    return own.result;
}

// ---- shared memory by address, asynchronous copies ----------------------------------------------------------------

void simt_load_shared(uint32_t* words, uint32_t count, uint32_t shared) {
    const char* p = machine->shared_pointer(shared);
    machine->aligned(p, 4 * count, Action::Read, HERE);
    machine->access(p, 4 * count, Action::Read, HERE);
    memcpy(words, p, 4 * count);
}
void simt_store_shared(const uint32_t* words, uint32_t count, uint32_t shared) {
    char* p = machine->shared_pointer(shared);
    machine->aligned(p, 4 * count, Action::Write, HERE);
    machine->access(p, 4 * count, Action::Write, HERE);
    memcpy(p, words, 4 * count);
}

void simt_copy_async(uint32_t shared, const void* global, uint32_t bytes, uint32_t valid_bytes) {
    machine->copy(shared, static_cast<const char*>(global), bytes, valid_bytes, HERE);
}
void simt_copy_async_commit() { machine->current->groups++; }
void simt_copy_async_wait(uint32_t pending) { machine->wait_copies(pending); }

// Four floats added to global memory: nobody else may, as the order of the additions would be anybody's.
void simt_add(float* p, const float* values, uint32_t count) {
    machine->aligned(reinterpret_cast<char*>(p), 4 * count, Action::Write, HERE);
    machine->access(p, 4 * count, Action::Read, HERE);
    machine->access(p, 4 * count, Action::Write, HERE);
    for (uint32_t i = 0; i < count; i++) p[i] += values[i];
}

// The word at an address, before an atomic operation, and after it: no other thread runs in between.
uint64_t simt_atomic_old(const void* word, uint64_t bytes, bool reads) {
    const char* p = static_cast<const char*>(word);
    const Action action = reads ? Action::Atomic : Action::Exchange;
    machine->aligned(p, bytes, action, HERE);
    if (machine->launch.by_clocks) machine->fail(Kind::Unsupported, HERE);
    // A thread's own stack is no memory of theirs.
    if (machine->current->fiber.owns(p))
        machine->fail(Kind::OutOfBounds, p, bytes, machine->event(*machine->current, action, HERE));
    machine->access(p, bytes, action, HERE);
    uint64_t bits = 0;
    memcpy(&bits, p, bytes);
    return bits;
}
void simt_atomic_new(void* word, uint64_t bytes, uint64_t bits) {
    if (memcmp(word, &bits, bytes) == 0) return;
    memcpy(word, &bits, bytes);
    machine->changed();
}

// ---- blocks that wait for each other ----------------------------------------------------------------------------------

uint32_t simt_acquire(const uint32_t* p) {
    machine->acquire(reinterpret_cast<const char*>(p), HERE);
    machine->count(*machine->current, Traffic::Load, reinterpret_cast<const char*>(p), sizeof(*p), HERE);
    return *p;
}
void simt_release(uint32_t* p, uint32_t value) {
    machine->release(reinterpret_cast<const char*>(p), HERE);
    machine->count(*machine->current, Traffic::Store, reinterpret_cast<const char*>(p), sizeof(*p), HERE);
    *p = value;
}

// ---- what the compiler's instrumentation calls ------------------------------------------------------

#define INSTRUMENTED(bytes) \
    void __tsan_read##bytes(void* p) { machine->access(p, bytes, Action::Read, HERE); } \
    void __tsan_write##bytes(void* p) { machine->access(p, bytes, Action::Write, HERE); } \
    void __tsan_unaligned_read##bytes(void* p) { machine->access(p, bytes, Action::Read, HERE); } \
    void __tsan_unaligned_write##bytes(void* p) { machine->access(p, bytes, Action::Write, HERE); }
INSTRUMENTED(1)
INSTRUMENTED(2)
INSTRUMENTED(4)
INSTRUMENTED(8)
INSTRUMENTED(16)
void __tsan_read_range(void* p, uint64_t bytes) { machine->access(p, bytes, Action::Read, HERE); }
void __tsan_write_range(void* p, uint64_t bytes) { machine->access(p, bytes, Action::Write, HERE); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// A pointer that is not aligned to its type, before it is used.
struct TypeMismatch {
    const char* file;
    uint32_t line, column;
    const void* type;
    uint8_t log_alignment, use;
};
void __ubsan_handle_type_mismatch_v1(const TypeMismatch* mismatch, const char* p) {
    const Action action = mismatch->use == 1 ? Action::Write : Action::Read;
    machine->fail(Kind::Misaligned, p, 1u << mismatch->log_alignment, machine->event(*machine->current, action, HERE));
}

} // extern "C"
