// How hardware moves what a warp asks for: global memory in sectors, shared memory in wavefronts.
#include "counters.h"

#include <algorithm>

namespace simt {
namespace {

constexpr uint32_t LANES = 32, WIDEST = 16, SECTOR = 32, BANKS = 32, WORD = 4;

template <typename T> void sort_each_once(std::vector<T>& all) {
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
}

// The units of memory that accesses touch, each once.
template <typename Access> std::vector<uintptr_t> units(const Access* from, const Access* to, uint32_t unit) {
    std::vector<uintptr_t> touched;
    for (; from < to; from++)
        for (uintptr_t i = from->address / unit; i <= (from->address + from->bytes - 1) / unit; i++)
            touched.push_back(i);
    sort_each_once(touched);
    return touched;
}

// Sectors that pass. One that a copy past L1 puts into two of shared memory's comes twice.
template <typename Access> uint32_t sectors(const Access* from, const Access* to) {
    std::vector<std::pair<uintptr_t, uintptr_t>> passing;
    for (; from < to; from++)
        for (const uintptr_t sector : units(from, from + 1, SECTOR)) passing.push_back({sector, from->to / SECTOR});
    sort_each_once(passing);
    return passing.size();
}

// Of lanes that are served together: as many as the words that one bank has to give.
template <typename Access> uint32_t wavefronts(const Access* from, const Access* to) {
    uint32_t of_bank[BANKS] = {};
    for (const uintptr_t word : units(from, to, WORD)) of_bank[word % BANKS]++;
    return *std::max_element(of_bank, of_bank + BANKS);
}

} // namespace

void Counters::access(uint32_t block, uint32_t thread, Traffic traffic, const char* p, uint64_t bytes,
                      const void* pc, const char* to) {
    const uint32_t lane = thread % LANES;
    Pending& pending = warps[{block, thread / LANES}][{pc, traffic}];
    // An instruction moves 1, 2, 4, 8 or 16 bytes a lane; a structure takes several.
    const uint32_t size = std::min<uint64_t>(bytes & -bytes, WIDEST);
    for (uint64_t first = 0; first < bytes; first += size) {
        const uint32_t n = pending.executed[lane]++;
        if (n == pending.requests.size()) pending.requests.emplace_back();
        pending.requests[n].push_back({uintptr_t(p) + first, uintptr_t(to), size, lane});
    }
}

void Counters::meet(uint32_t block, uint32_t warp) {
    const auto found = warps.find({block, warp});
    if (found == warps.end()) return;
    for (auto& [place, pending] : found->second)
        for (Request& request : pending.requests) count(place, request);
    warps.erase(found);
}

std::vector<Count> Counters::finish() {
    while (!warps.empty()) meet(warps.begin()->first.first, warps.begin()->first.second);
    std::vector<Count> all;
    for (const auto& [place, count] : counts) all.push_back(count);
    return all;
}

void Counters::count(const Place& place, Request& request) {
    std::sort(request.begin(), request.end(), [](const Access& a, const Access& b) { return a.lane < b.lane; });
    const Access *from = request.data(), *end = from + request.size();
    Count& count = counts.try_emplace(place, Count{place.first, place.second, 0, 0, 0, 0}).first->second;
    count.requests++;
    if (place.second <= Traffic::Copy) {
        count.moved += sectors(from, end);
        count.needed += units(from, end, 1).size();
        return;
    }
    // As many lanes at a time as 128 bytes are enough for.
    const uint32_t lanes = std::min(BANKS, BANKS * WORD / from->bytes);
    while (from < end) {
        const Access* to = from;
        while (to < end && to->lane / lanes == from->lane / lanes) to++;
        count.moved += wavefronts(from, to);
        count.needed++;
        from = to;
    }
}

} // namespace simt
