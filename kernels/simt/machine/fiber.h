// Fibers: a stack each, entered once through ucontext, switched by setjmp and longjmp, which make no system call.
#pragma once
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace simt {

class Fiber {
public:
    // Stacks begin at `COLORS` places, an odd number of cache lines apart: frames at the same depth of all of them
    // would meet in a few sets of a cache.
    static constexpr size_t STACK_BYTES = 256 << 10, COLORS = 128, COLOR_BYTES = 17 * 64;
    static constexpr size_t MAPPED_BYTES = STACK_BYTES + COLORS * COLOR_BYTES;

    Fiber() {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* memory = mmap(nullptr, MAPPED_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED) abort();
        stack = static_cast<char*>(memory);
    }
    Fiber(const Fiber&) = delete;
    ~Fiber() { munmap(stack, MAPPED_BYTES); }

    // The first switch to it calls `body`, which must not return.
    void start(void (*body)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        const size_t color = reinterpret_cast<uintptr_t>(stack) / MAPPED_BYTES % COLORS;
        context.uc_stack.ss_size = MAPPED_BYTES - color * COLOR_BYTES;
        context.uc_link = nullptr;
        makecontext(&context, body, 0);
    }

    // From the scheduler to the fiber; returns when it leaves.
    void enter(jmp_buf& scheduler) {
        if (_setjmp(scheduler)) return;
        if (entered) _longjmp(place, 1);
        entered = true;
        setcontext(&context);
    }

    // From the fiber to the scheduler; returns when it is entered again.
    void leave(jmp_buf& scheduler) {
        if (!_setjmp(place)) _longjmp(scheduler, 1);
    }

    bool owns(const char* p) const { return p >= stack && p < stack + MAPPED_BYTES; }

private:
    char* stack;
    ucontext_t context;
    jmp_buf place;
    bool entered = false;
};

} // namespace simt
