// What accesses cost the memory system. A warp's instruction is one request, but lanes run one after the other here:
// an access waits for those that the other lanes make in the same place of the program, as often executed since all
// lanes last met.
#pragma once
#include <stdint.h>

#include <map>
#include <utility>
#include <vector>

namespace simt {

// What an instruction does: to global memory, of which cp.async copies, or to shared memory.
enum class Traffic : uint32_t { Load, Store, Copy, SharedLoad, SharedStore, LoadMatrix };

inline Traffic traffic_of(bool global, bool reads) {
    if (global) return reads ? Traffic::Load : Traffic::Store;
    return reads ? Traffic::SharedLoad : Traffic::SharedStore;
}

// What one instruction of the program cost in a launch. The twin in Rust is in src/launch.rs.
struct Count {
    const void* pc;
    Traffic traffic;
    uint32_t reserved;
    uint64_t requests; // warps that executed it
    uint64_t moved;    // sectors of global memory, or wavefronts of shared memory
    uint64_t needed;   // bytes that lanes asked for, each once, or wavefronts without bank conflicts
};

class Counters {
public:
    // An access by a thread. A copy past L1 says where it goes.
    void access(uint32_t block, uint32_t thread, Traffic traffic, const char* p, uint64_t bytes, const void* pc,
                const char* to = nullptr);

    // All lanes of a warp have come to one place: what waits for more lanes waits no longer.
    void meet(uint32_t block, uint32_t warp);

    // The launch has ended: its instructions.
    std::vector<Count> finish();

private:
    typedef std::pair<const void*, Traffic> Place;

    struct Access {
        uintptr_t address, to;
        uint32_t bytes, lane;
    };
    typedef std::vector<Access> Request;

    // One instruction, executed by some lanes of a warp.
    struct Pending {
        uint32_t executed[32] = {};
        std::vector<Request> requests;
    };

    std::map<std::pair<uint32_t, uint32_t>, std::map<Place, Pending>> warps; // by block and warp
    std::map<Place, Count> counts;

    void count(const Place& place, Request& request);
};

// Of the launch that runs on this system thread, if it is counted.
inline thread_local Counters* counters = nullptr;

} // namespace simt
