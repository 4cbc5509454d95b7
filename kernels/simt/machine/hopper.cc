// What Hopper alone has: memory barriers that count bytes, copies described by tensor maps, clusters, named barriers,
// registers that move between warps. PTX ISA: "mbarrier", "Asynchronous Data Movement", "Tensor Map", "barrier.cluster".
#include "machine.h"

namespace simt {
namespace {

// Bytes of a row of a box: the widest that the swizzle takes.
constexpr uint32_t SWIZZLED_ROW = 128;

// How far a barrier's bytes may be from none (PTX ISA, "Size and alignment of mbarrier object").
constexpr int64_t MOST_BYTES = (1 << 20) - 1;

} // namespace

char* Machine::bytes_at(const Place& place) {
    const uint64_t bytes = launch.dynamic_shared_bytes;
    const char* dynamic = place.owner->dynamic.get();
    if (place.owner == block || (place.p >= dynamic && place.p < dynamic + bytes)) return place.p;
    char* contents = place.owner->contents.data();
    for (uint64_t i = 0; i < launch.shared_count; contents += launch.shared[i].bytes, i++) {
        const Region& region = launch.shared[i];
        if (place.p >= region.base && place.p < region.base + region.bytes) return contents + (place.p - region.base);
    }
    return nullptr; // access() has looked
}

// ---- memory barriers ----------------------------------------------------------------------------------------------

void Machine::init_barrier(uint32_t shared, uint32_t arrivals, const void* pc) {
    char* word = shared_pointer(shared);
    aligned(word, 8, Action::Write, pc);
    access(*current, word, 8, Action::Write, pc);
    auto& barriers = block->barriers;
    const bool again = std::any_of(barriers.begin(), barriers.end(), [&](auto& one) { return one->word == word; });
    if (again || arrivals == 0 || arrivals >= 1 << 20 || barriers.size() == MEMORY_BARRIERS)
        fail(Kind::Unsupported, word, 8, event(*current, Action::Write, pc));
    const uint32_t slot = slot_of(*block, threads + warps() + barriers.size());
    barriers.push_back(std::make_unique<MemoryBarrier>());
    MemoryBarrier& barrier = *barriers.back();
    barrier.block = block, barrier.word = word, barrier.slot = slot;
    barrier.arrivals = barrier.pending = arrivals;
    barrier.last = event(*current, Action::Write, pc);
}

// fence.mbarrier_init: those that this thread has initialized are known to copies and to other blocks.
void Machine::announce_barriers() {
    for (const auto& barrier : block->barriers)
        if (barrier->phase == 0 && barrier->last.slot() == current->slot) barrier->announced = true;
}

// An initialized barrier, known to be so to the thread that uses it.
MemoryBarrier& Machine::barrier_at(uint32_t shared, Action action, const void* pc) {
    const Place place = place_at(shared, pc);
    const Event now = event(*current, action, pc);
    if (place.owner->live == 0) fail(Kind::Gone, place.p, 8, now, {}, place.owner);
    for (const auto& barrier : place.owner->barriers) {
        if (barrier->word != place.p) continue;
        access(*place.owner, memory_at(place), *current, now, place.p, 8);
        if (place.owner != block && !barrier->announced) fail(Kind::Unannounced, place.p, 8, now, barrier->last, place.owner);
        return *barrier;
    }
    fail(Kind::NotABarrier, place.p, 8, now, {}, place.owner);
}

// Somebody else's block may not end before this is known there.
void Machine::visit(Block& owner, const Event& event) {
    for (Event& visit : owner.visits)
        if (visit.slot() == event.slot()) {
            visit = event;
            return;
        }
    owner.visits.push_back(event);
}

void Machine::arrive(uint32_t shared, uint32_t bytes, const void* pc) {
    MemoryBarrier& barrier = barrier_at(shared, Action::Arrive, pc);
    const Event now = event(*current, Action::Arrive, pc);
    const auto refuse = [&](Kind kind) { fail(kind, barrier.word, 8, now, barrier.last, barrier.block); };
    if (barrier.pending == 0) refuse(Kind::OverArrival);
    barrier.bytes += bytes;
    if (barrier.bytes > MOST_BYTES) refuse(Kind::Transaction);
    barrier.pending--;
    if (barrier.block != block) visit(*barrier.block, now);
    tell(barrier.joined, *current);
    try_to_pass(barrier, now);
    if (report.kind != Kind::Nothing) leave_for_good();
}

// Ends the phase if nothing is missing. What arrives later, or too much, is wrong now.
void Machine::try_to_pass(MemoryBarrier& barrier, const Event& by) {
    const Event before = barrier.last;
    barrier.last = by;
    if (barrier.pending > 0) return;
    if (barrier.bytes < 0 || (barrier.bytes == 0 && barrier.transfers > 0))
        return blame(Kind::Transaction, barrier.word, 8, by, before, barrier.block);
    if (barrier.bytes > 0) return;
    if (barrier.late > 0) return blame(Kind::Deadlock, barrier.word, 8, by, before, barrier.block);
    barrier.phase++;
    barrier.pending = barrier.arrivals;
    barrier.joined.add(barrier.slot, barrier.phase, 0, all_slots());
    barrier.passed = barrier.joined.finish();
    for (const auto& thread : barrier.block->threads) {
        if (thread->waits_in != Operation::MemoryBarrier || thread->barrier != &barrier) continue;
        if ((barrier.phase & 1) == thread->parity) continue;
        barrier.late++;
        wake(*barrier.block, *thread);
    }
}

// Whether the phase of this parity is over. It may take time, and then say no.
bool Machine::try_wait(uint32_t shared, uint32_t parity, const void* pc) {
    MemoryBarrier& barrier = barrier_at(shared, Action::Acquire, pc);
    if (barrier.block != block || parity > 1) fail(Kind::Unsupported, barrier.word, 8, event(*current, Action::Acquire, pc));
    bool waited = false;
    if ((barrier.phase & 1) == parity) {
        current->barrier = &barrier, current->parity = parity;
        sleep(Operation::MemoryBarrier, pc);
        barrier.late--;
        waited = true;
    }
    if (waited && next_random() % 4 == 0) return false;
    hear(*current, barrier.passed);
    return true;
}

// ---- bulk copies and remote stores --------------------------------------------------------------------------------

void Machine::fence_proxy() {
    current->known.fenced = current->known.all;
    current->fenced_epoch = current->epoch++;
}

// What is on its way to shared memory. The bytes appear when it arrives, which a barrier in the same block counts.
void Machine::start_transfer(const Place& place, std::vector<char> data, MemoryBarrier& barrier, Action action,
                             const void* pc) {
    const Event now = event(*current, action, pc);
    if (place.owner->live == 0) fail(Kind::Gone, place.p, data.size(), now, {}, place.owner);
    if (barrier.block != place.owner) fail(Kind::Unsupported, place.p, data.size(), now, barrier.last, place.owner);
    if (!barrier.announced) fail(Kind::Unannounced, barrier.word, 8, now, barrier.last, place.owner);
    Memory* memory = memory_at(place);
    access(*place.owner, memory, *current, now, place.p, data.size());
    memory->each(place.p, data.size(), [](Cell& cell, Event*) { cell.under_way = true; });
    barrier.transfers++;
    Event arrival = event(*current, action, pc, barrier.slot, barrier.phase + 1);
    visit(*place.owner, arrival);
    cluster->transfers.push_back({place.owner, place.p, std::move(data), &barrier, arrival});
}

// One of those under way arrives.
void Machine::deliver() {
    std::vector<Transfer>& transfers = cluster->transfers;
    std::swap(transfers[next_random() % transfers.size()], transfers.back());
    const Transfer one = std::move(transfers.back());
    transfers.pop_back();
    const Place place = {one.to, one.place};
    memcpy(bytes_at(place), one.data.data(), one.data.size());
    memory_at(place)->each(one.place, one.data.size(),
                           [&](Cell& cell, Event*) { cell.under_way = false, cell.write = one.event; });
    MemoryBarrier& barrier = *one.barrier;
    barrier.transfers--;
    barrier.bytes -= one.data.size();
    try_to_pass(barrier, one.event);
}

void Machine::copy_box(uint32_t shared, const TensorMap* map, int32_t x, int32_t y, uint32_t barrier, uint32_t blocks,
                       const void* pc) {
    const auto refuse = [&](Kind kind) { fail(kind, shared_pointer(shared % CLUSTER_BASE), 0, event(*current, Action::Bulk, pc)); };
    if (map->magic != TensorMap::MAGIC || map->box_columns * map->element_bytes != SWIZZLED_ROW) refuse(Kind::Description);
    if (shared % SWIZZLED_ROW != 0) refuse(Kind::Misaligned);
    if (shared >= CLUSTER_BASE || barrier >= CLUSTER_BASE) refuse(Kind::Unsupported);
    const uint32_t element = map->element_bytes, bytes = map->box_rows * SWIZZLED_ROW;
    std::vector<char> data(bytes);
    for (uint32_t row = 0; row < map->box_rows; row++) {
        const int64_t i = int64_t(y) + row;
        if (i < 0 || i >= map->rows) continue;
        const int64_t first = std::max<int64_t>(x, 0);
        const int64_t end = std::min<int64_t>(int64_t(x) + map->box_columns, map->columns);
        if (first >= end) continue;
        const char* from = map->base + (i * map->columns + first) * element;
        access(*current, from, (end - first) * element, Action::Read, pc);
        char line[SWIZZLED_ROW] = {};
        memcpy(line + (first - x) * element, from, (end - first) * element);
        for (uint32_t chunk = 0; chunk < SWIZZLED_ROW; chunk += 16) {
            const uint32_t to = swizzled(shared + row * SWIZZLED_ROW + chunk) - shared;
            memcpy(&data[to], line + chunk, 16);
        }
    }
    if (blocks == 0) return start_transfer(place_at(shared, pc), std::move(data), barrier_at(barrier, Action::Arrive, pc), Action::Bulk, pc);
    if (blocks >> launch.cluster != 0) refuse(Kind::Unsupported);
    for (uint32_t rank = 0; rank < launch.cluster; rank++) {
        if ((blocks >> rank & 1) == 0) continue;
        const uint32_t window = CLUSTER_BASE * (rank + 1);
        start_transfer(place_at(window + shared, pc), data, barrier_at(window + barrier, Action::Arrive, pc), Action::Bulk, pc);
    }
}

void Machine::send(uint32_t shared, const uint32_t* words, uint32_t count, uint32_t barrier, const void* pc) {
    const Place place = place_at(shared, pc);
    aligned(place.p, 4 * count, Action::Send, pc);
    const char* bytes = reinterpret_cast<const char*>(words);
    start_transfer(place, std::vector<char>(bytes, bytes + 4 * count), barrier_at(barrier, Action::Arrive, pc),
                   Action::Send, pc);
}

// ---- clusters and named barriers ----------------------------------------------------------------------------------

void Machine::arrive_at_cluster(const void* pc) {
    if (current->at_cluster_barrier) fail(Kind::Unsupported, pc);
    current->at_cluster_barrier = true;
    current->parity = cluster->phase;
    cluster->arrived++;
    tell(cluster->joined, *current);
    pass_cluster_barrier();
}

void Machine::wait_for_cluster(const void* pc) {
    if (!current->at_cluster_barrier) fail(Kind::Unsupported, pc);
    if (cluster->phase == current->parity) sleep(Operation::ClusterBarrier, pc);
    current->at_cluster_barrier = false;
    hear(*current, cluster->passed);
}

// Threads that have ended are not waited for.
void Machine::pass_cluster_barrier() {
    uint32_t live = 0;
    for (const auto& one : cluster->blocks) live += one->live;
    if (cluster->arrived == 0 || cluster->arrived < live) return;
    cluster->arrived = 0, cluster->phase++;
    cluster->passed = cluster->joined.finish();
    for (const auto& one : cluster->blocks)
        for (const auto& thread : one->threads)
            if (thread->waits_in == Operation::ClusterBarrier) wake(*one, *thread);
}

void Machine::sync_named(uint32_t number, uint32_t count, const void* pc) {
    if (number == 0 || number >= NAMED_BARRIERS || count == 0 || count % WARP != 0) fail(Kind::Unsupported, pc);
    NamedBarrier& barrier = block->named[number];
    std::vector<Thread*>& here = barrier.rendezvous.here;
    if (here.empty()) barrier.threads = count;
    if (barrier.threads != count) diverge(*current, pc, *here[0]);
    wait(barrier.rendezvous, count, Operation::NamedBarrier, pc, [&](Rendezvous& all) { share_knowledge(all.here); });
}

// ---- registers ----------------------------------------------------------------------------------------------------

void Machine::set_registers(uint32_t registers, bool more, const void* pc) {
    if (registers < 24 || registers > 256 || registers % REGISTER_UNIT != 0) fail(Kind::RegisterLimit, pc);
    int nothing = 0;
    with_warp(Operation::SetRegisters, ALL_LANES, nothing, pc, [&](int**) {
        Warp& own = warp();
        own.wanted = registers == own.registers ? 0 : registers;
    });
    Warp& own = warp();
    if (more ? registers < own.registers : registers > own.registers) fail(Kind::RegisterLimit, pc);
    if (!more && own.wanted != 0) { // the first lane to go on does it for all
        block->free_registers += (own.registers - registers) * WARP;
        own.registers = registers, own.wanted = 0;
    }
    grant_registers();
    if (own.wanted != 0) sleep(Operation::Registers, pc);
}

// To warps that wait for more and can have them.
void Machine::grant_registers() {
    for (Warp& one : block->warps) {
        if (one.wanted <= one.registers) continue;
        const uint32_t missing = (one.wanted - one.registers) * WARP;
        if (missing > block->free_registers) continue;
        block->free_registers -= missing;
        one.registers = one.wanted, one.wanted = 0;
        const uint32_t first = (&one - block->warps.data()) * WARP;
        for (uint32_t i = first; i < first + WARP; i++)
            if (block->threads[i]->waits_in == Operation::Registers) wake(*block, *block->threads[i]);
    }
}

} // namespace simt

// ---- what kernels call --------------------------------------------------------------------------------------------

using namespace simt;

#define HERE __builtin_return_address(0)

extern "C" {

void simt_hopper_barrier_init(uint32_t shared, uint32_t arrivals) { machine->init_barrier(shared, arrivals, HERE); }
void simt_hopper_barrier_init_fence() { machine->announce_barriers(); }
void simt_hopper_barrier_arrive(uint32_t shared, uint32_t bytes) { machine->arrive(shared, bytes, HERE); }
bool simt_hopper_barrier_try_wait(uint32_t shared, uint32_t parity) { return machine->try_wait(shared, parity, HERE); }
void simt_hopper_barrier_sync(uint32_t number, uint32_t threads) { machine->sync_named(number, threads, HERE); }
void simt_hopper_fence_proxy() { machine->fence_proxy(); }
void simt_hopper_copy_box(uint32_t shared, const void* map, uint32_t x, uint32_t y, uint32_t barrier, uint32_t blocks) {
    machine->copy_box(shared, static_cast<const TensorMap*>(map), x, y, barrier, blocks, HERE);
}
void simt_hopper_send(uint32_t shared, const uint32_t* words, uint32_t count, uint32_t barrier) {
    machine->send(shared, words, count, barrier, HERE);
}
uint32_t simt_hopper_cluster_rank() { return machine->block->rank; }
uint32_t simt_hopper_map_shared(uint32_t shared, uint32_t rank) {
    if (rank >= machine->launch.cluster || shared >= CLUSTER_BASE) machine->fail(Kind::OutOfBounds, HERE);
    return CLUSTER_BASE * (rank + 1) + shared;
}
void simt_hopper_cluster_arrive() { machine->arrive_at_cluster(HERE); }
void simt_hopper_cluster_wait() { machine->wait_for_cluster(HERE); }
void simt_hopper_set_registers(uint32_t registers, bool more) { machine->set_registers(registers, more, HERE); }

} // extern "C"
