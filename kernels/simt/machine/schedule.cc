// Blocks and threads in turn. Of the blocks that a GPU could hold at one time any may begin next; it goes on until it ends
// or waits for another.
#include "machine.h"

namespace simt {
namespace {

// Blocks that a GPU holds at one time: the next in the grid begins when one has ended.
constexpr size_t RESIDENT_BLOCKS = 64;
// Fibers kept for the next block: those of the largest cluster.
constexpr size_t IDLE_THREADS = 4096;

// Fibers of this system thread that have run a thread to its end and can run another, of this launch or the next.
std::vector<std::unique_ptr<Thread>>& idle() {
    thread_local std::vector<std::unique_ptr<Thread>> all;
    return all;
}

} // namespace

void thread_body() {
    for (;;) {
        machine->launch.entry(machine->launch.params);
        machine->thread_ended();
        machine->leave();
    }
}

void Machine::thread_ended() {
    current->done = true;
    block->live--;
    if (!launch.by_clocks) return;
    forget(*current);
    tell(block->ending, *current);
    pass_cluster_barrier();
}

void Machine::run() {
    const uint32_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2], clusters = blocks / launch.cluster;
    if (launch.grid[0] % launch.cluster != 0) {
        report.kind = Kind::PartialCluster;
        return;
    }
    const size_t most = std::max<size_t>(1, RESIDENT_BLOCKS / launch.cluster);
    std::vector<uint32_t> resident; // and have not begun
    uint32_t next = 0;
    while (report.kind == Kind::Nothing) {
        while (next < clusters && resident.size() + waiting.size() < most) resident.push_back(next++);
        const auto stuck = std::partition(waiting.begin(), waiting.end(), [](auto& one) { return one->can_go_on(); });
        const size_t can_go_on = stuck - waiting.begin();
        if (resident.size() + can_go_on == 0) break;
        const size_t chosen = next_random() % (resident.size() + can_go_on);
        if (chosen < can_go_on) {
            std::swap(waiting[chosen], waiting.back());
            cluster = std::move(waiting.back());
            waiting.pop_back();
        } else {
            std::swap(resident[chosen - can_go_on], resident.back());
            begin(resident.back());
            resident.pop_back();
        }
        advance();
    }
    if (report.kind != Kind::Nothing || waiting.empty()) return;
    for (const auto& one : waiting.front()->blocks)
        for (const auto& thread : one->threads) {
            if (!thread->awaits_release()) continue;
            block = one.get();
            const char* word = thread->flag->word;
            return blame(Kind::Deadlock, word, 4, event(*thread, Action::Barrier, thread->waits_at),
                         find(word)->last_write(word));
        }
}

// The cluster of this number.
void Machine::begin(uint32_t index) {
    if (ended.empty()) {
        cluster = std::make_unique<Cluster>();
        for (uint32_t rank = 0; rank < launch.cluster; rank++) {
            cluster->blocks.push_back(std::make_unique<Block>());
            Block& one = *cluster->blocks.back();
            one.rank = rank;
            const size_t bytes = launch.dynamic_shared_bytes;
            one.dynamic.reset(static_cast<char*>(aligned_alloc(1024, (bytes + 1023) / 1024 * 1024 + 1024)));
            for (uint64_t i = 0; i < launch.shared_count; i++)
                one.shared.emplace_back(Space::Static, i, launch.shared[i]);
            one.shared.emplace_back(Space::Dynamic, 0, Region{one.dynamic.get(), bytes, 1, 0});
            if (launch.by_clocks)
                for (Memory& memory : one.shared) memory.remember_readers(warps());
        }
    } else {
        cluster = std::move(ended.back());
        ended.pop_back();
        for (const auto& one : cluster->blocks)
            for (Memory& memory : one->shared) memory.reset();
    }
    cluster->arrived = 0;
    for (const auto& one : cluster->blocks) begin(*one, index * launch.cluster + one->rank);
}

void Machine::begin(Block& one, uint32_t index) {
    memset(one.dynamic.get(), POISON & 0xff, launch.dynamic_shared_bytes);
    size_t bytes = 0;
    for (uint64_t i = 0; i < launch.shared_count; i++) bytes += launch.shared[i].bytes;
    one.contents.assign(bytes, POISON & 0xff);
    one.index = index, one.round = 0, one.live = threads;
    one.warps.assign(warps(), Warp());
    one.heard.clear();
    if (launch.by_clocks) {
        const uint32_t share = REGISTER_FILE / (threads * std::max(launch.resident_blocks, 1u));
        for (Warp& warp : one.warps) warp.registers = std::min(share / REGISTER_UNIT * REGISTER_UNIT, 255u);
        one.free_registers = 0;
        one.barriers.clear(), one.visits.clear(), one.warpgroups.clear();
    }
    for (uint32_t i = 0; i < threads; i++) {
        if (idle().empty()) {
            idle().push_back(std::make_unique<Thread>());
            idle().back()->fiber.start(thread_body);
        }
        one.threads.push_back(std::move(idle().back()));
        idle().pop_back();
        Thread& thread = *one.threads.back();
        thread.index = i, thread.done = false, thread.waits_in = Operation::Nothing, thread.groups = 0;
        thread.copies.clear();
        thread.flag = nullptr;
        if (launch.by_clocks) {
            thread.slot = slot_of(one, i), thread.warp_slot = slot_of(one, threads + i / WARP);
            thread.epoch = 1, thread.fenced_epoch = 0, thread.known = {}, thread.barrier = nullptr;
            thread.at_cluster_barrier = thread.wgmma_fenced = false;
            thread.wgmma_groups = thread.wgmma_done = 0;
            thread.registers.clear();
        } else {
            thread.slot = 0, thread.warp_slot = 1;
        }
        one.ready.push_back(&thread);
    }
}

// Its static variables are where the program has them.
void Machine::activate(Block& one) {
    recent = nullptr;
    if (block == &one) return;
    const auto move = [&](Block& owner, bool in) {
        char* other = owner.contents.data();
        for (uint64_t i = 0; i < launch.shared_count; other += launch.shared[i].bytes, i++) {
            char* place = launch.shared[i].base;
            memcpy(in ? place : other, in ? other : place, launch.shared[i].bytes);
        }
    };
    if (block) move(*block, false);
    block = &one;
    move(one, true);
}

// Until all threads of the cluster have ended or wait.
void Machine::advance() {
    do {
        for (const auto& one : cluster->blocks)
            for (const auto& thread : one->threads)
                if (thread->is_released()) wake(*one, *thread);
        while (run_ready()) {
            if (report.kind != Kind::Nothing) return;
        }
    } while (cluster->can_go_on());
    if (stuck()) return;
    const auto awaits = [](const auto& thread) { return thread->awaits_release(); };
    for (const auto& one : cluster->blocks)
        if (std::any_of(one->threads.begin(), one->threads.end(), awaits)) {
            waiting.push_back(std::move(cluster));
            return;
        }
    end();
}

// Runs a block that has threads to run, or lets data arrive, as late as it may. Whether there was any.
bool Machine::run_ready() {
    auto& blocks = cluster->blocks;
    const uint32_t first = blocks.size() > 1 ? next_random() % blocks.size() : 0;
    for (uint32_t i = 0; i < blocks.size(); i++) {
        Block& one = *blocks[(first + i) % blocks.size()];
        if (one.ready.empty()) continue;
        activate(one);
        std::vector<Thread*>& ready = one.ready;
        while (!ready.empty()) {
            std::swap(ready[next_random() % ready.size()], ready.back());
            current = ready.back();
            ready.pop_back();
            current->accesses = 0;
            in_fiber = true;
            current->fiber.enter(scheduler);
            in_fiber = false;
            if (report.kind != Kind::Nothing) return true;
        }
        return true;
    }
    if (cluster->transfers.empty()) return false;
    deliver();
    return true;
}

// Whether threads wait for what is not coming, and not for another cluster.
bool Machine::stuck() {
    for (const auto& one : cluster->blocks)
        for (const auto& thread : one->threads)
            if (thread->awaits_release()) return false;
    for (const auto& one : cluster->blocks)
        for (const auto& thread : one->threads) {
            if (thread->waits_in != Operation::Registers) continue;
            block = one.get();
            blame(Kind::RegisterLimit, nullptr, 0, event(*thread, Action::Barrier, thread->waits_at), {});
            return true;
        }
    for (const auto& one : cluster->blocks)
        for (const auto& thread : one->threads) {
            if (thread->waits_in != Operation::MemoryBarrier) continue;
            block = one.get();
            const MemoryBarrier& barrier = *thread->barrier;
            const Kind kind = barrier.pending == 0 ? Kind::Transaction : Kind::Deadlock;
            blame(kind, barrier.word, 8, event(*thread, Action::Barrier, thread->waits_at), barrier.last);
            return true;
        }
    for (const auto& one : cluster->blocks) {
        const auto& all = one->threads;
        const auto first = [&](auto what) { return std::find_if(all.begin(), all.end(), what); };
        const auto waits = first([](const auto& thread) { return !thread->done; });
        if (waits == all.end()) continue;
        // They wait for one that is not coming.
        const Operation operation = (*waits)->waits_in;
        const auto other = first([&](const auto& thread) { return thread->done || thread->waits_in != operation; });
        block = one.get();
        divergence(**waits, (*waits)->waits_at, other == all.end() ? **waits : **other);
        return true;
    }
    return false;
}

void Machine::end() {
    for (const auto& one : cluster->blocks) {
        if (launch.by_clocks) end(*one);
        for (auto& thread : one->threads)
            if (idle().size() < IDLE_THREADS) idle().push_back(std::move(thread));
        one->threads.clear();
    }
    block = nullptr;
    if (report.kind == Kind::Nothing) ended.push_back(std::move(cluster));
}

// What others did to its shared memory was done before its last thread ended, on every schedule.
void Machine::end(Block& one) {
    block = &one;
    const Clock known = one.ending.finish().all;
    for (const Event& visit : one.visits) {
        if (report.kind != Kind::Nothing || (known && (*known)[visit.slot()] >= visit.epoch())) continue;
        blame(Kind::Gone, nullptr, 0, event(*one.threads[0], Action::Exit, nullptr), visit);
    }
}

} // namespace simt
