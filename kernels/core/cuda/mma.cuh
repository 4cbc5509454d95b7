// Tensor cores, cp.async and semaphores as every architecture since sm_80 has them: thin wrappers, one instruction
// each. Fragments are laid out as in the PTX ISA, "Matrix Fragments for mma.m16n8k16" (lane = 4 * group + member).
#pragma once
#include "device.cuh"

// Address of shared memory as the instructions below take it.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Starts a copy of 16 bytes from global to shared memory, bypassing L1; if not `valid` it writes zeros and reads
// nothing.
__device__ __forceinline__ void cp_async(uint32_t shared, const void* global, bool valid = true) {
    asm volatile("{\n.reg .pred ignored;\nsetp.eq.u32 ignored, %2, 0;\n"
                 "cp.async.cg.shared.global [%0], [%1], 16, ignored;\n}" ::"r"(shared),
                 "l"(global), "r"(uint32_t(valid))
                 : "memory");
}
// The same for 4 bytes.
__device__ __forceinline__ void cp_async4(uint32_t shared, const void* global, bool valid) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(valid ? 4 : 0)
                 : "memory");
}
// Closes a group of copies.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `pending` of this thread's groups are in flight. Other threads' copies are visible after a
// barrier.
template <int pending> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}
// The same, each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t shared) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared)
                 : "memory");
}

// d += a b for a 16 x 16, b 16 x 8 in bf16 and d 16 x 8 in f32.
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Semaphores between CTAs of one launch: what a CTA stored before a barrier and this release is visible to whoever
// acquires the value.
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* p) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}
__device__ __forceinline__ void store_release(uint32_t* p, uint32_t value) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

// Cached in L2 only: L1 may hold what was there before another CTA stored.
__device__ __forceinline__ float4_t load4_cg(const float* p) {
    float4_t result;
    asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(result.v[0]), "=f"(result.v[1]), "=f"(result.v[2]), "=f"(result.v[3])
                 : "l"(p)
                 : "memory");
    return result;
}

// Starts bringing the line of an address to L2.
__device__ __forceinline__ void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
