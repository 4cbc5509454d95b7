// y = x x^T of the first 64 columns: the warpgroup stores its rows to shared memory itself.
#include "planted.cuh"

KERNEL(planted_params) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const uint32_t tile = address_of(memory);
    for (uint32_t i = threadIdx.x; i < 64 * 8; i += 128) {
        const uint32_t row = i / 8, chunk = i % 8, to = row * 128 + (chunk ^ row % 8) * 16;
        *(float4_t*)(memory + to) = ((const float4_t*)p.x)[row * 32 + chunk];
    }
#if DEFECT != 1
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
#if DEFECT == 2
    sync_warp();
#elif DEFECT == 3
    PTX("bar.sync %0, %1;", "r"(1), "r"(threadIdx.x < 64 ? 64 : 128));
#else
    PTX("bar.sync %0, %1;", "r"(1), "r"(128));
#endif
    float sum[32];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (uint32_t step = 0; step < 4; step++) multiply(sum, describe(tile, 1024, 1) + 2 * step, step > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#if DEFECT == 4
    *(float4_t*)(memory + threadIdx.x * 16) = {};
#endif
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(0) : "memory");
    store(p, sum);
}
