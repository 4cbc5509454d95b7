// What is known of memory: who touched it last, whether it was written, whether a copy to it is under way.
// It is known of cells, which are as large as accesses let them be: of 16 bytes down to two, the smallest element there is.
#pragma once
#include <algorithm>
#include <vector>

#include "launch.h"

namespace simt {

// An access and its place in the order that barriers make. Where that is an order of clocks, `round` is the epoch and
// `warp_round` the slot.
struct Event {
    int32_t pc = 0; // from the kernel's entry
    uint32_t block = 0;
    uint32_t thread : 10 = 0;   // a block has at most 1024
    uint32_t action : 4 = 0;    // an `Action`
    uint32_t releases : 18 = 0; // of the launch before it
    uint32_t round = 0;         // barriers of the block before it
    uint32_t warp_round = 0;    // barriers of the warp before it

    bool happened() const { return action != uint32_t(Action::None); }
    bool synchronizes() const {
        return action == uint32_t(Action::Acquire) || action == uint32_t(Action::Release);
    }
    bool is_atomic() const { return action == uint32_t(Action::Atomic) || action == uint32_t(Action::Exchange); }
    // Whether the asynchronous proxy did it: other accesses are in order with it only through a fence.
    bool is_async() const { return action == uint32_t(Action::Bulk) || action == uint32_t(Action::Wgmma); }
    bool same_warp(const Event& other) const { return block == other.block && thread / 32 == other.thread / 32; }
    uint32_t epoch() const { return round; }
    uint32_t slot() const { return warp_round; }

    // Whether this one happened before `later`, of the same block, on every schedule.
    bool before(const Event& later) const {
        return round != later.round || thread == later.thread || (same_warp(later) && warp_round != later.warp_round);
    }
};

// What one block told another: all that came before the release `told` came before all that follows `heard`.
struct Edge {
    Event told, heard;
};

// Whether `earlier` happened before `later` on every schedule; `heard` is what the block of `later` was told.
inline bool ordered(const Event& earlier, const Event& later, const std::vector<Edge>& heard) {
    if (!earlier.happened() || (earlier.synchronizes() && later.synchronizes())) return true;
    if (earlier.is_atomic() && later.is_atomic()) return true;
    if (earlier.block == later.block) return earlier.before(later);
    return std::any_of(heard.begin(), heard.end(), [&](const Edge& edge) {
        return earlier.block == edge.told.block && earlier.releases <= edge.told.releases && earlier.before(edge.told) &&
               edge.heard.before(later);
    });
}

// One cache line.
struct alignas(64) Cell {
    Event write;
    Event reads[2]; // the last one, and the last one of another warp
    bool written = false;
    bool under_way = false;
};

class Memory {
public:
    Space space;
    uint64_t index;
    Region region;

    Memory(Space space, uint64_t index, Region region) : space(space), index(index), region(region) { reset(); }

    // Nobody writes it, and all of it was there before the launch: nothing needs to be known of it.
    bool constant() const { return !region.writable && region.written; }

    // Nothing is known but what was there before the launch.
    void reset() {
        const size_t count = constant() ? 0 : (region.bytes + PAGE_BYTES - 1) / PAGE_BYTES;
        pages.resize(count);
        for (size_t i = 0; i < count; i++) {
            const uint64_t bytes = std::min<uint64_t>(PAGE_BYTES, region.bytes - i * PAGE_BYTES);
            pages[i].reset(bytes, region.written, warps);
        }
    }

    // From now on the last read of each warp is known.
    void remember_readers(uint32_t of_warps) {
        warps = of_warps;
        reset();
    }
    uint32_t readers_count() const { return warps; }

    bool holds(const char* p) const { return p >= region.base && p < region.base + region.bytes; }
    Cell& cell(const char* p) {
        const uint64_t at = p - region.base;
        Page& page = pages[at / PAGE_BYTES];
        return page.cells[at % PAGE_BYTES >> page.cell_bits];
    }
    Event last_write(const char* p) { return constant() ? Event() : cell(p).write; }

    // The cell of a range, where it is whole and one.
    Cell* only(const char* p, uint64_t bytes) {
        const uint64_t at = p - region.base;
        if (at + bytes > region.bytes) return nullptr;
        Page& page = pages[at / PAGE_BYTES];
        const bool whole = bytes == 1u << page.cell_bits && (at & (bytes - 1)) == 0;
        return whole ? &page.cells[at % PAGE_BYTES >> page.cell_bits] : nullptr;
    }

    // Each cell of a range, with the last read of each warp if they are known.
    template <typename F> void each(const char* p, uint64_t bytes, F f) {
        for (uint64_t at = p - region.base, end = at + bytes; at < end;) {
            const uint64_t start = at % PAGE_BYTES, part = std::min(end - at, PAGE_BYTES - start);
            Page& page = pages[at / PAGE_BYTES];
            while (page.cell_bits > 1 && ((start | part) & ((1 << page.cell_bits) - 1)) != 0) page.halve(warps);
            const uint64_t last = (start + part + (1 << page.cell_bits) - 1) >> page.cell_bits;
            for (uint64_t i = start >> page.cell_bits; i < last; i++)
                f(page.cells[i], warps == 0 ? nullptr : &page.readers[i * warps]);
            at += part;
        }
    }

private:
    // Cells are as small as accesses to their page: those of a barrier leave those of tiles whole.
    static constexpr uint64_t PAGE_BYTES = 4096;

    struct Page {
        uint32_t cell_bits = 4; // of a cell's bytes: every access divides by them
        std::vector<Cell> cells;
        std::vector<Event> readers; // of each cell by each warp

        void reset(uint64_t bytes, bool written, uint32_t warps) {
            Cell cell;
            cell.written = written;
            cells.assign((bytes + (1 << cell_bits) - 1) >> cell_bits, cell);
            readers.assign(cells.size() * warps, Event());
        }

        void halve(uint32_t warps) {
            std::vector<Cell> halves;
            halves.reserve(2 * cells.size());
            for (const Cell& cell : cells) halves.push_back(cell), halves.push_back(cell);
            std::vector<Event> of_halves;
            of_halves.reserve(2 * readers.size());
            for (size_t i = 0; i < cells.size() && warps > 0; i++)
                for (uint32_t half = 0; half < 2; half++)
                    of_halves.insert(of_halves.end(), &readers[i * warps], &readers[i * warps] + warps);
            cells.swap(halves);
            readers.swap(of_halves);
            cell_bits--;
        }
    };
    std::vector<Page> pages;
    uint32_t warps = 0;
};

// Remembers a read of `cell`, for whoever writes it next.
inline void remember(Cell& cell, Event* reader, const Event& now) {
    if (reader) {
        *reader = now;
        return;
    }
    if (cell.reads[0].happened() && !cell.reads[0].same_warp(now)) cell.reads[1] = cell.reads[0];
    cell.reads[0] = now;
}

// Remembers a plain access that barriers of its block alone put behind all others of the cell, as they do most; not so
// if that takes more to know.
[[gnu::always_inline]] inline bool settle(Cell& cell, const Event& now, bool reads) {
    const auto is_behind = [&](const Event& earlier) {
        return !earlier.happened() || (earlier.block == now.block && earlier.before(now));
    };
    if (cell.under_way || !is_behind(cell.write)) return false;
    if (reads) {
        if (!cell.written) return false;
        remember(cell, nullptr, now);
        return true;
    }
    if (!is_behind(cell.reads[0]) || !is_behind(cell.reads[1])) return false;
    cell.write = now;
    cell.reads[0] = cell.reads[1] = Event();
    cell.written = true;
    return true;
}

// What is wrong with a read of `cell`, and what it conflicts with. `order` says of an access what is wrong if this one
// comes after it.
template <typename Order>
inline Kind read(Cell& cell, Event* reader, const Event& now, const Order& order, Event& before) {
    const Kind wrong = order(cell.write);
    if (cell.under_way || !cell.written || wrong != Kind::Nothing) {
        before = cell.write;
        return cell.under_way ? Kind::UnderWay : wrong != Kind::Nothing ? wrong : Kind::Unwritten;
    }
    remember(cell, reader, now);
    return Kind::Nothing;
}

// The same of a write.
template <typename Order>
inline Kind write(Cell& cell, Event* readers, uint32_t warps, const Event& now, const Order& order, Event& before) {
    if (cell.under_way) {
        before = cell.write;
        return Kind::UnderWay;
    }
    if (now.action == uint32_t(Action::Atomic) && !cell.written) return Kind::Unwritten;
    const auto conflicts = [&](const Event& other) {
        const Kind wrong = order(other);
        if (wrong != Kind::Nothing) before = other;
        return wrong;
    };
    for (const Event* other : {&cell.write, &cell.reads[0], &cell.reads[1]})
        if (const Kind wrong = conflicts(*other); wrong != Kind::Nothing) return wrong;
    if (readers)
        for (uint32_t i = 0; i < warps; i++) {
            if (const Kind wrong = conflicts(readers[i]); wrong != Kind::Nothing) return wrong;
            if (!now.is_atomic()) readers[i] = Event();
        }
    // Atomic operations are in no order with each other: each comes behind the plain accesses before all of them.
    if (!now.is_atomic())
        cell.reads[0] = cell.reads[1] = Event();
    else if (!cell.write.is_atomic() && !cell.reads[0].happened())
        cell.reads[0] = cell.write;
    cell.write = now;
    cell.written = true;
    return Kind::Nothing;
}

} // namespace simt
