// y = x x^T: one thread copies slices of 64 columns into a ring of two stages, a warpgroup multiplies them.
#include "planted.cuh"

enum : uint32_t { STAGE = 64 * 128, STAGES = 2, SLICES = 4 };

KERNEL(planted_params) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32_t ring = address_of(memory), full = ring + STAGES * STAGE, empty = full + STAGES * 8;
    if (threadIdx.x == 0) {
        for (uint32_t stage = 0; stage < STAGES; stage++) {
            init(full + stage * 8, 1);
#if DEFECT == 5
            init(empty + stage * 8, 3);
#else
            init(empty + stage * 8, 4);
#endif
        }
#if DEFECT != 11
        announce();
#endif
    }
    sync_block();
    if (threadIdx.x >= 128) {
#if DEFECT != 12
        PTX("setmaxnreg.dec.sync.aligned.u32 %0;", "n"(40));
#endif
        for (uint32_t slice = 0; threadIdx.x == 128 && slice < SLICES; slice++) {
            const uint32_t stage = slice % STAGES, barrier = full + stage * 8, turn = slice / STAGES % 2;
#if DEFECT == 6
            wait(empty + stage * 8, turn);
#elif DEFECT != 15
            wait(empty + stage * 8, turn ^ 1);
#endif
#if DEFECT == 3
            expect(barrier, 2 * STAGE);
#elif DEFECT == 4
            expect(barrier, STAGE / 2);
#elif DEFECT == 14
            expect(barrier, STAGE / 2), expect(barrier, STAGE / 2);
#else
            expect(barrier, STAGE);
#endif
            PTX("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];",
                "r"(ring + stage * STAGE), "l"(p.maps), "r"(barrier), "r"(slice * 64), "r"(0));
        }
        return;
    }
    PTX("setmaxnreg.inc.sync.aligned.u32 %0;", "n"(208));
    float sum[32];
    const auto free = [&](uint32_t slice) {
        const uint32_t barrier = empty + slice % STAGES * 8;
#if DEFECT == 13
        arrive(barrier);
#else
        if (threadIdx.x % 32 == 0) arrive(barrier);
#endif
    };
    for (uint32_t slice = 0; slice < SLICES; slice++) {
        const uint32_t stage = slice % STAGES, turn = slice / STAGES % 2;
#if DEFECT == 7
        wait(full + stage * 8, turn ^ 1);
#else
        wait(full + stage * 8, turn);
#endif
#if DEFECT == 8
        const uint64_t x = describe(ring + stage * STAGE, 1024, 2);
#elif DEFECT == 9
        const uint64_t x = describe(ring + stage * STAGE, 512, 1);
#else
        const uint64_t x = describe(ring + stage * STAGE, 1024, 1);
#endif
#if DEFECT != 10
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
        for (uint32_t step = 0; step < 4; step++) multiply(sum, x + 2 * step, slice > 0 || step > 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#if DEFECT == 16
        sum[0] += 1.0f;
#endif
        if (slice == 0) continue;
#if DEFECT != 1
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(1) : "memory");
#endif
        free(slice - 1);
    }
#if DEFECT != 2
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(0) : "memory");
#endif
    free(SLICES - 1);
#if DEFECT == 17
    sum[0] += 1.0f;
    for (uint32_t step = 0; step < 4; step++) multiply(sum, describe(ring, 1024, 1), true);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(0) : "memory");
#endif
    store(p, sum);
}
