// Which blocks of code have been executed, of kernels that are compiled to say so (-fsanitize-coverage=trace-pc).
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <atomic>

namespace {

// Addresses behind calls, by their hash; 0 where there is none.
constexpr size_t PLACES = 1 << 18;
std::atomic<uintptr_t> places[PLACES];

// Where an address stands, or would.
std::atomic<uintptr_t>& find(uintptr_t pc) {
    for (size_t i = pc * 0x9e3779b97f4a7c15u >> 46, n = 0; n < PLACES; i = (i + 1) % PLACES, n++) {
        const uintptr_t there = places[i].load(std::memory_order_relaxed);
        if (there == pc || there == 0) return places[i];
    }
    fputs("more blocks of code than coverage.cc has places for\n", stderr);
    abort();
}

} // namespace

// g++ calls it at the beginning of each block.
extern "C" void __sanitizer_cov_trace_pc() {
    const uintptr_t pc = uintptr_t(__builtin_return_address(0));
    for (uintptr_t there = 0; !find(pc).compare_exchange_strong(there, pc) && there != pc;) there = 0;
}

// True if the call that returns to this address has been made.
extern "C" bool simt_executed(uintptr_t pc) { return find(pc).load(std::memory_order_relaxed) == pc; }
