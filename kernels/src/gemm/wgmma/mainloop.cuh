// The warp-specialized GEMM behind all forms on sm_90a: C[i, j] = sum over r of A(i, r) * B(r, j), bf16 in, f32
// accumulators. A producer warp keeps the stages of a pipeline full by TMA, across tiles; consumer warpgroups issue
// wgmma, 64 rows of a tile each. They round a tile in registers and store it while the wgmma of the next are in flight,
// so that tensor cores wait for the rounding alone, and for what it reads of a bias, scales and a residual. Where
// k-tiles are small, a stage holds several, and each operand has a producer warp: else consumers wait for mbarriers,
// not for copies.
// The last stage may have k-tiles past the end, which are zeros and change no sum.
// Bound: tensor cores. Tiles of 128 x 192 to 256 read (128 + N) / (128 N) elements per multiply-add, in a pair that
// shares B (128 + N / 2) / (128 N), which L2 can serve.
// Sources: NVIDIA, CUTLASS 3, "Efficient GEMM in CUDA" (warp specialization, persistent kernels); DeepGEMM.
#pragma once
#include "early.cuh"
#include "gemm/wgmma/cluster_reduction.cuh"
#include "wgmma.cuh"

// An operand's tile of `rows` rows in one stage. K-major: rows of 128 bytes after each other. MN-major (`mn`): slabs of
// 64 rows, in each of them one step of K after the other.
template <uint32_t rows, bool mn> struct OperandTile {
    enum : uint32_t {
        SLABS = (rows + 63) / 64,
        BYTES = mn ? uint32_t(SLABS) * SLAB_BYTES : rows * 128,
        K_STEP = mn ? 16 * 128 : 32, // bytes from one wgmma of depth 16 to the next
    };

    static __device__ __forceinline__ void
    load(uint32_t shared, const tensor_map* map, uint32_t row, uint32_t k, uint32_t full) {
        if (mn) {
#pragma unroll
            for (uint32_t slab = 0; slab < SLABS; slab++)
                tma_load_2d(shared + slab * SLAB_BYTES, map, row + slab * 64, k, full);
        } else {
            tma_load_2d(shared, map, k, row, full);
        }
    }
    // Loads what CTA `rank` loads for all CTAs of the cluster: its part of a K-major tile, or every CLUSTER-th slab.
    static __device__ __forceinline__ void
    load_multicast(uint32_t shared, const tensor_map* map, uint32_t row, uint32_t k, uint32_t full, uint32_t rank) {
        enum : uint32_t { ROWS = rows / CLUSTER };
        const uint16_t all = (1 << CLUSTER) - 1;
        if constexpr (mn) {
            for (uint32_t slab = rank; slab < SLABS; slab += CLUSTER)
                tma_load_2d_multicast(shared + slab * SLAB_BYTES, map, row + slab * 64, k, full, all);
        } else {
            static_assert(rows % (8 * CLUSTER) == 0, "parts of whole swizzle atoms");
            tma_load_2d_multicast(shared + rank * ROWS * 128, map, k, row + rank * ROWS, full, all);
        }
    }
    static __device__ __forceinline__ uint64_t descriptor(uint32_t shared) {
        return smem_descriptor(descriptor_word(shared, mn ? uint32_t(SLAB_BYTES) : 16));
    }
};

// For one thread: sets up the pipeline's mbarriers (`producer_warps` fill a stage, `consumer_warps` free it) and
// prefetches the descriptors.
template <uint32_t stages>
__device__ __forceinline__ void init_pipeline(const tensor_map* maps, uint32_t full, uint32_t empty,
                                              uint32_t producer_warps, uint32_t consumer_warps) {
    prefetch_tensor_map(maps);
    prefetch_tensor_map(maps + 1);
    for (uint32_t stage = 0; stage < stages; stage++) {
        mbarrier_init(full + stage * 8, producer_warps);
        mbarrier_init(empty + stage * 8, consumer_warps);
    }
}

// Returns chunk c of a tile.
template <uint32_t quads, typename Quad, uint32_t count>
__device__ __forceinline__ Quad (&chunk_of(Quad (&tile)[count], uint32_t c))[quads] {
    return reinterpret_cast<Quad(&)[quads]>(tile[c * quads]);
}

// `scheduler` assigns tiles of a problem. maps: A and B. `epilogue` takes the accumulators: begin(row, column), the
// thread's first, while the last wgmma are in flight, then for each chunk of CHUNK columns store(c, values), or, if it
// DEFERS, round(c, values, pairs) and later store(c, pairs); it may use SCRATCH bytes of shared memory per warp. Its
// Sum, the accumulators' type, selects the instruction. If PAIRED, B has 2 n columns: half of a tile's are n after the
// other half, and store() takes a chunk of each. `a_mn`, `b_mn`: MN-major. `b_ahead`: B is weights, which the launch in
// front does not write: their producer does not wait for it.
template <bool a_mn, bool b_mn, typename Scheduler, bool b_ahead = false, typename Epilogue>
__device__ __forceinline__ void
gemm(const tensor_map* maps, const typename Scheduler::Problem& problem, Epilogue& epilogue) {
    typedef OperandTile<TILE_M, a_mn> A;
    typedef OperandTile<TILE_N, b_mn> B;
    typedef OperandTile<Epilogue::PAIRED ? TILE_N / 2 : TILE_N, b_mn> BPart; // part of B per load
    enum : uint32_t {
        B_PARTS = Epilogue::PAIRED ? 2 : 1,
        // Of a stage; a part of K would end within one of several k-tiles.
        WHOLE = STAGE_GOAL_BYTES / (A::BYTES + B::BYTES),
        K_TILES = WHOLE > 1 && (CLUSTER == 1 || !Scheduler::STREAM_K) ? WHOLE : 1,
        A_BYTES = K_TILES * A::BYTES,
        B_BYTES = K_TILES * B::BYTES,
        STAGE_BYTES = A_BYTES + B_BYTES,
        PRODUCERS = K_TILES > 1 ? 2 : 1, // warps
        SCRATCH_BYTES = CONSUMERS * 4 * Epilogue::SCRATCH,
        // Three warpgroups are launched with 65536 / 384 registers per thread, in units of 8: 168. The producer keeps
        // what fits its addresses, few where operands are K-major; the two consumers share the rest of 3 x 168.
        PRODUCER_REGISTERS = a_mn || b_mn ? 40 : 24,
        CONSUMER_REGISTERS = (3 * 168 - PRODUCER_REGISTERS) / 2,
        FIT = (SHARED_BYTES - SCRATCH_BYTES - 1024) / STAGE_BYTES, // 1024: mbarriers
        STAGES = FIT < 8 ? FIT : 8,
    };
    // The CTAs of a cluster go through stages in step, and share B by multicast where their tiles have equal columns.
    enum : bool { STREAM_K = Scheduler::STREAM_K, MULTICAST = CLUSTER > 1 };
    static_assert(!MULTICAST || !STREAM_K || b_mn, "K-major operands are always copied in parts");
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t a_stages = shared_address(shared), b_stages = a_stages + STAGES * A_BYTES;
    const uint32_t scratch = a_stages + STAGES * STAGE_BYTES, full = scratch + SCRATCH_BYTES, empty = full + STAGES * 8;
    ClusterReduction reduction(a_stages, empty + STAGES * 8);

    const uint32_t warp = broadcast(threadIdx.x / WARP), lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        init_pipeline<STAGES>(maps, full, empty, PRODUCERS, CONSUMERS * 4 * (MULTICAST ? CLUSTER : 1));
        if (STREAM_K) reduction.init();
        fence_mbarrier_init();
    }
    CLUSTER > 1 ? cluster_sync() : sync_block();
    if (!b_ahead || PRODUCERS == 1 || warp != CONSUMERS * 4 + 1) begin_early();

    Scheduler scheduler(problem);
    typename Scheduler::Work work;
    uint32_t stage = 0, parity = 0;
    const auto advance = [&] {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    };

    if (warp >= CONSUMERS * 4) { // producers
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        const bool loads = warp < CONSUMERS * 4 + PRODUCERS && lane == 0;
        const bool loads_a = PRODUCERS == 1 || warp == CONSUMERS * 4, loads_b = PRODUCERS == 1 || !loads_a;
        while (scheduler.next(work)) {
            if (loads)
                for (uint32_t first = work.begin; first < work.end; first += K_TILES, advance()) {
                    const uint32_t barrier = full + stage * 8;
                    mbarrier_wait(empty + stage * 8, parity ^ 1);
                    mbarrier_arrive_expect_tx(barrier, loads_a && loads_b ? STAGE_BYTES : loads_a ? A_BYTES : B_BYTES);
                    for (uint32_t i = 0; i < K_TILES; i++) {
                        const uint32_t slot = stage * K_TILES + i, k = (first + i) * TILE_K;
                        if (loads_a) A::load(a_stages + slot * A::BYTES, maps, work.row, k, barrier);
                        for (uint32_t part = 0; loads_b && part < B_PARTS; part++) {
                            const uint32_t to = b_stages + slot * B::BYTES + part * BPart::BYTES;
                            const uint32_t row = Scheduler::weight_row(work) + part * problem.n;
                            if (work.shares) BPart::load_multicast(to, maps + 1, row, k, barrier, scheduler.rank);
                            else BPart::load(to, maps + 1, row, k, barrier);
                        }
                    }
                }
            if (loads && work.split_k) reduction.wait_empty();
        }
    } else { // consumers
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        const uint32_t warpgroup = warp / 4;
        enum : uint32_t { QUADS = Epilogue::CHUNK / 8, CHUNKS = TILE_N / Epilogue::CHUNK / B_PARTS };
        typename Epilogue::Sum accumulators[TILE_N / 8][4];
        uint32_t rounded[Epilogue::DEFERS ? TILE_N / 8 : 1][2];
        bool is_deferred = false, is_split = false; // the tile that `rounded` holds
        epilogue.scratch = scratch + warp * Epilogue::SCRATCH;
        const auto release = [&](uint32_t which) {
            if (MULTICAST) {
                if (lane < CLUSTER) mbarrier_arrive(empty + which * 8, lane);
            } else if (lane == 0) {
                mbarrier_arrive(empty + which * 8);
            }
        };
        // Stores chunk c, of a tile that is split one of this CTA's.
        const auto store = [&](uint32_t c) {
            if (is_split) {
                if (c % CLUSTER != scheduler.rank) return;
                // Skipped chunks do not alternate the slots: lanes may still read the one that this chunk takes.
                sync_warp();
            }
            if constexpr (!Epilogue::DEFERS) epilogue.store(c, chunk_of<QUADS>(accumulators, c));
            else if constexpr (!Epilogue::PAIRED) epilogue.store(c, chunk_of<QUADS>(rounded, c));
            else epilogue.store(c, chunk_of<QUADS>(rounded, c), chunk_of<QUADS>(rounded, CHUNKS + c));
        };
        while (scheduler.next(work)) {
            uint32_t first = work.begin, previous = 0;
            const auto multiply = [&](bool is_first) { // by one stage
                mbarrier_wait(full + stage * 8, parity);
                const uint64_t a = A::descriptor(a_stages + stage * K_TILES * A::BYTES + warpgroup * SLAB_BYTES);
                const uint64_t b = B::descriptor(b_stages + stage * K_TILES * B::BYTES);
                wgmma_fence();
#pragma unroll
                for (uint32_t k_tile = 0; k_tile < K_TILES; k_tile++) {
#pragma unroll
                    for (uint32_t step = 0; step < TILE_K / 16; step++)
                        wgmma<a_mn, b_mn>(accumulators, a + k_tile * (A::BYTES >> 4) + step * (A::K_STEP >> 4),
                                          b + k_tile * (B::BYTES >> 4) + step * (B::K_STEP >> 4),
                                          !is_first || k_tile != 0 || step != 0);
                }
                wgmma_commit();
                if (!is_first) {
                    wgmma_wait<1>();
                    release(previous);
                }
                previous = stage;
                first += K_TILES;
                advance();
            };
            multiply(true); // no tile is without k-tiles
            if (is_deferred)
#pragma unroll
                for (uint32_t c = 0; c < CHUNKS; c++) {
                    store(c);
                    if (first < work.end) multiply(false);
                }
            while (first < work.end) multiply(false);
            Scheduler::enter(epilogue, work);
            sync_warp(); // lanes may still read the scratch of the previous tile
            epilogue.begin(work.row + warp * 16, work.column);
            wgmma_wait<0>();
            release(previous);
            is_split = work.split_k;
            if (is_split) reduction.reduce<Epilogue::CHUNK>(accumulators, scheduler.rank);
            if constexpr (Epilogue::DEFERS) {
#pragma unroll
                for (uint32_t c = 0; c < B_PARTS * CHUNKS; c++)
                    epilogue.round(c, chunk_of<QUADS>(accumulators, c), chunk_of<QUADS>(rounded, c));
                is_deferred = true;
            } else {
#pragma unroll
                for (uint32_t c = 0; c < CHUNKS; c++) store(c);
            }
        }
        if (is_deferred)
#pragma unroll
            for (uint32_t c = 0; c < CHUNKS; c++) store(c);
    }
    if (MULTICAST) cluster_sync(); // other CTAs may still write and arrive here
}
