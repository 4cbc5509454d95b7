// Two blocks of a cluster copy half of 64 rows each, for both; each sends the other what it finds in the first column.
#include "planted.cuh"

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(VARIANT_THREADS, 1)
    ENTRY(const __grid_constant__ planted_params p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    __shared__ __align__(16) float inbox[64];
    __shared__ uint64_t barriers[3];
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const uint32_t tile = address_of(memory), full = address_of(barriers), sent = full + 8, done = full + 16;
    if (threadIdx.x == 0) {
        init(full, 1), init(sent, 1), init(done, 32);
        announce();
    }
#if DEFECT == 3
    sync_block();
#else
    sync_cluster();
#endif
    if (threadIdx.x == 0) {
        expect(full, 64 * 128);
#if DEFECT == 1
        const uint16_t blocks = 1;
#else
        const uint16_t blocks = 3;
#endif
        PTX("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
            "[%1, {%3, %4}], [%2], %5;",
            "r"(tile + rank * 4096), "l"(p.maps), "r"(full), "r"(0), "r"(rank * 32), "h"(blocks));
#if DEFECT == 4
        expect(sent, 32 * 4);
#else
        expect(sent, 32 * 8);
#endif
    }
#if DEFECT != 6
    wait(full, 0);
#endif
    const uint32_t lane = threadIdx.x, row = rank * 32 + lane;
    const uint32_t first = *(const uint32_t*)(memory + row * 128 + row % 8 * 16);
    PTX("{.reg .b32 there, told; mapa.shared::cluster.u32 there, %0, %1; mapa.shared::cluster.u32 told, %2, %1; "
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [told];}",
        "r"(address_of(inbox + 2 * lane)), "r"(rank ^ 1), "r"(sent), "f"(__uint_as_float(first << 16)), "f"(1.0f));
#if DEFECT == 2
    ((float*)p.y)[rank * 32 + lane] = 1.0f;
    return;
#endif
    wait(sent, 0);
    ((float*)p.y)[rank * 32 + lane] = inbox[2 * lane] + inbox[2 * lane + 1];
    PTX("{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there];}",
        "r"(done), "r"(rank ^ 1));
#if DEFECT != 5
    wait(done, 0);
#endif
}
