// Blocks and threads in turn. Of the blocks that a GPU could hold at one time any may begin next; it goes on until it ends
// or waits for another.
#include "machine.h"

namespace simt {
namespace {

// Blocks that a GPU holds at one time: the next in the grid begins when one has ended.
constexpr size_t RESIDENT_BLOCKS = 64;
// Fibers kept for the next block.
constexpr size_t IDLE_THREADS = 1024;

// Fibers of this system thread that have run a thread to its end and can run another, of this launch or the next.
std::vector<std::unique_ptr<Thread>>& idle() {
    thread_local std::vector<std::unique_ptr<Thread>> all;
    return all;
}

void thread_body() {
    for (;;) {
        machine->launch.entry(machine->launch.params);
        machine->current->done = true;
        machine->leave();
    }
}

} // namespace

void Machine::run() {
    const uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
    std::vector<uint32_t> resident; // and have not begun
    uint32_t next = 0;
    while (report.kind == Kind::Nothing) {
        while (next < blocks && resident.size() + waiting.size() < RESIDENT_BLOCKS) resident.push_back(next++);
        const auto stuck = std::partition(waiting.begin(), waiting.end(), [](auto& one) { return one->can_go_on(); });
        const size_t can_go_on = stuck - waiting.begin();
        if (resident.size() + can_go_on == 0) break;
        const size_t chosen = next_random() % (resident.size() + can_go_on);
        if (chosen < can_go_on) {
            resume(chosen);
        } else {
            std::swap(resident[chosen - can_go_on], resident.back());
            begin(resident.back());
            resident.pop_back();
        }
        advance();
    }
    if (report.kind != Kind::Nothing || waiting.empty()) return;
    block = std::move(waiting.front());
    const auto waits = [](const auto& thread) { return thread->awaits_release(); };
    const Thread& thread = **std::find_if(block->threads.begin(), block->threads.end(), waits);
    const char* word = thread.flag->word;
    blame(Kind::Deadlock, word, 4, event(thread, Action::Barrier, thread.waits_at), find(word)->cell(word).write);
}

void Machine::begin(uint32_t index) {
    if (ended.empty()) {
        block = std::make_unique<Block>();
        for (uint64_t i = 0; i < launch.shared_count; i++)
            block->shared.emplace_back(Space::Static, i, launch.shared[i]);
        block->shared.emplace_back(Space::Dynamic, 0, Region{dynamic.get(), launch.dynamic_shared_bytes, 1, 0});
    } else {
        block = std::move(ended.back());
        ended.pop_back();
        for (Memory& memory : block->shared) memory.reset();
    }
    for (const Memory& memory : block->shared) memset(memory.region.base, POISON & 0xff, memory.region.bytes);
    const uint32_t count = launch.block[0] * launch.block[1] * launch.block[2];
    block->index = index, block->round = 0;
    block->warps.assign((count + WARP - 1) / WARP, Warp());
    block->heard.clear();
    for (uint32_t i = 0; i < count; i++) {
        if (idle().empty()) {
            idle().push_back(std::make_unique<Thread>());
            idle().back()->fiber.start(thread_body);
        }
        block->threads.push_back(std::move(idle().back()));
        idle().pop_back();
        Thread& thread = *block->threads.back();
        thread.index = i, thread.done = false, thread.waits_in = Operation::Nothing, thread.groups = 0;
        thread.copies.clear();
        thread.flag = nullptr;
        block->ready.push_back(&thread);
    }
}

void Machine::resume(size_t index) {
    std::swap(waiting[index], waiting.back());
    block = std::move(waiting.back());
    waiting.pop_back();
    const char* from = block->contents.data();
    for (const Memory& memory : block->shared) {
        memcpy(memory.region.base, from, memory.region.bytes);
        from += memory.region.bytes;
    }
}

// Until all threads of the block have ended or wait.
void Machine::advance() {
    recent = nullptr;
    std::vector<Thread*>& ready = block->ready;
    do {
        for (const auto& thread : block->threads)
            if (thread->is_released()) {
                thread->waits_in = Operation::Nothing;
                ready.push_back(thread.get());
            }
        while (!ready.empty()) {
            std::swap(ready[next_random() % ready.size()], ready.back());
            current = ready.back();
            ready.pop_back();
            current->accesses = 0;
            current->fiber.enter(scheduler);
            if (report.kind != Kind::Nothing) return;
        }
    } while (block->can_go_on());
    const auto& threads = block->threads;
    const auto first = [&](auto what) { return std::find_if(threads.begin(), threads.end(), what); };
    if (first([](const auto& thread) { return thread->awaits_release(); }) != threads.end()) return put_aside();
    const auto waits = first([](const auto& thread) { return !thread->done; });
    if (waits == threads.end()) return end();
    // They wait for one that is not coming.
    const Operation operation = (*waits)->waits_in;
    const auto other = first([&](const auto& thread) { return thread->done || thread->waits_in != operation; });
    divergence(**waits, (*waits)->waits_at, other == threads.end() ? **waits : **other);
}

void Machine::put_aside() {
    block->contents.clear();
    for (const Memory& memory : block->shared) {
        const char* base = memory.region.base;
        block->contents.insert(block->contents.end(), base, base + memory.region.bytes);
    }
    waiting.push_back(std::move(block));
}

void Machine::end() {
    for (auto& thread : block->threads)
        if (idle().size() < IDLE_THREADS) idle().push_back(std::move(thread));
    block->threads.clear();
    ended.push_back(std::move(block));
}

} // namespace simt
