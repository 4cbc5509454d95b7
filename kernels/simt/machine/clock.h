// What threads of a cluster know of each other's past: vector clocks. Each thread has a slot, each warp one for its
// wgmma groups, each memory barrier one for what arrives at it. Threads that met share one clock.
#pragma once
#include <stdint.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace simt {

// By slot, the last epoch that came before on every schedule; null for none.
typedef std::shared_ptr<const std::vector<uint32_t>> Clock;

// Joins two clocks. The lanes of a warp join the same ones: the last results are kept.
class Joins {
public:
    Clock operator()(const Clock& a, const Clock& b) {
        if (!b || a == b) return a;
        if (!a) return b;
        for (const Join& last : recent)
            if (last.a == a && last.b == b) return last.result;
        auto both = std::make_shared<std::vector<uint32_t>>(*a);
        const uint32_t* from = b->data();
        uint32_t* to = both->data();
        for (size_t i = 0; i < both->size(); i++) to[i] = std::max(to[i], from[i]);
        recent[next] = {a, b, both};
        next = (next + 1) % std::size(recent);
        return both;
    }

private:
    struct Join {
        Clock a, b, result;
    };
    Join recent[8];
    size_t next = 0;
};

// What a thread knows.
struct Knowledge {
    Clock all;
    Clock fenced; // of that, what a proxy fence has made known to asynchronous accesses
};

// The knowledge of those that have come to a barrier.
class JoinedKnowledge {
public:
    void add(const Knowledge& known, size_t slots) {
        join(all, known.all, seen[0], slots);
        join(fenced, known.fenced, seen[1], slots);
    }
    void add(uint32_t slot, uint32_t epoch, uint32_t fenced_epoch, size_t slots) {
        if (all.empty()) all.resize(slots);
        all[slot] = std::max(all[slot], epoch);
        if (fenced_epoch == 0) return;
        if (fenced.empty()) fenced.resize(slots);
        fenced[slot] = std::max(fenced[slot], fenced_epoch);
    }
    // Starts over.
    Knowledge finish() {
        Knowledge known;
        if (!all.empty()) known.all = std::make_shared<std::vector<uint32_t>>(std::move(all));
        if (!fenced.empty()) known.fenced = std::make_shared<std::vector<uint32_t>>(std::move(fenced));
        *this = JoinedKnowledge();
        return known;
    }

private:
    std::vector<uint32_t> all, fenced;
    std::vector<Clock> seen[2];

    static void join(std::vector<uint32_t>& sum, const Clock& clock, std::vector<Clock>& seen, size_t slots) {
        if (!clock || std::find(seen.begin(), seen.end(), clock) != seen.end()) return;
        seen.push_back(clock);
        if (sum.empty()) sum.resize(slots);
        const uint32_t* from = clock->data();
        for (size_t i = 0; i < slots; i++) sum[i] = std::max(sum[i], from[i]);
    }
};

} // namespace simt
