// PTX instructions as functions of the same name, operands in the order they are written: what `asm` statements become.
// An instruction that is missing here does not compile.
#pragma once
#include <stdint.h>

#include "wgmma.h"

extern "C" {
void simt_copy_async(uint32_t shared, const void* global, uint32_t bytes, uint32_t valid_bytes);
void simt_copy_async_commit();
void simt_copy_async_wait(uint32_t pending);
void simt_load_matrix(uint32_t* r, uint32_t shared, bool transposed);
void simt_mma(float* d, const uint32_t* a, const uint32_t* b, const float* c);
void simt_mma_s8(int32_t* d, const uint32_t* a, const uint32_t* b, const int32_t* c);
void simt_load_shared(uint32_t* words, uint32_t count, uint32_t shared);
void simt_store_shared(const uint32_t* words, uint32_t count, uint32_t shared);
uint32_t simt_acquire(const uint32_t* p);
void simt_release(uint32_t* p, uint32_t value);
void simt_store_matrix(const uint32_t* r, uint32_t shared);
void simt_add(float* p, const float* values, uint32_t count);
float exp2f(float);

// A kernel that calls one of these is ordered by clocks.
void simt_hopper_barrier_init(uint32_t shared, uint32_t arrivals);
void simt_hopper_barrier_init_fence();
void simt_hopper_barrier_arrive(uint32_t shared, uint32_t bytes);
bool simt_hopper_barrier_try_wait(uint32_t shared, uint32_t parity);
void simt_hopper_barrier_sync(uint32_t number, uint32_t threads);
void simt_hopper_fence_proxy();
void simt_hopper_copy_box(uint32_t shared, const void* map, uint32_t x, uint32_t y, uint32_t barrier, uint32_t blocks);
void simt_hopper_send(uint32_t shared, const uint32_t* words, uint32_t count, uint32_t barrier);
uint32_t simt_hopper_cluster_rank();
uint32_t simt_hopper_map_shared(uint32_t shared, uint32_t rank);
void simt_hopper_cluster_arrive();
void simt_hopper_cluster_wait();
void simt_hopper_set_registers(uint32_t registers, bool more);
void simt_hopper_wgmma(const simt::Wgmma* wgmma, const void* pc);
void simt_hopper_wgmma_fence();
void simt_hopper_wgmma_commit();
void simt_hopper_wgmma_wait(uint32_t pending);
}

#define SIMT_PLAIN __attribute__((no_sanitize("thread", "alignment")))

namespace ptx {

// Subnormal values are zeros of their sign.
SIMT_INLINE float flushed(float value) {
    const uint32_t bits = __float_as_uint(value);
    return (bits & 0x7f800000u) == 0 ? __uint_as_float(bits & 0x80000000u) : value;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------

SIMT_INLINE uint32_t rounded_to_bf16(float value) {
    const uint32_t bits = __float_as_uint(value);
    if (value != value) return 0x7fff;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
SIMT_INLINE void cvt_rn_bf16_f32(uint16_t& d, float a) { d = rounded_to_bf16(a); }
SIMT_INLINE void cvt_rn_bf16x2_f32(uint32_t& d, float high, float low) {
    d = rounded_to_bf16(high) << 16 | rounded_to_bf16(low);
}
SIMT_INLINE void cvt_rn_f16_f32(uint16_t& d, float a) { d = __builtin_bit_cast(uint16_t, _Float16(a)); }
SIMT_INLINE void cvt_f32_f16(float& d, uint16_t a) {
    // The exponent's bias is 112 more; what is subnormal in 16 bits is normal afterwards.
    const float magnitude = __uint_as_float(uint32_t(a & 0x7fff) << 13) * 0x1p112f;
    const uint32_t special = (a & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    d = __uint_as_float(__float_as_uint(magnitude) | special | uint32_t(a & 0x8000) << 16);
}
SIMT_INLINE void rcp_approx_f32(float& d, float a) { d = 1.0f / a; }
SIMT_INLINE void rcp_approx_ftz_f32(float& d, float a) { d = flushed(1.0f / flushed(a)); }
SIMT_INLINE void sqrt_approx_ftz_f32(float& d, float a) { d = flushed(sqrtf(flushed(a))); }
SIMT_INLINE void ex2_approx_ftz_f32(float& d, float a) { d = flushed(exp2f(flushed(a))); }
SIMT_INLINE void lg2_approx_ftz_f32(float& d, float a) { d = flushed(log2f(flushed(a))); }
SIMT_INLINE void max_bf16x2(uint32_t& d, uint32_t a, uint32_t b) {
    const float high = fmaxf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u));
    const float low = fmaxf(__uint_as_float(a << 16), __uint_as_float(b << 16));
    cvt_rn_bf16x2_f32(d, high, low);
}

// ---- shared memory by address -----------------------------------------------------------------------------------

SIMT_INLINE void st_shared_b32(uint32_t shared, uint32_t a) { simt_store_shared(&a, 1, shared); }
SIMT_INLINE void st_shared_v2_f32(uint32_t shared, float a, float b) {
    const uint32_t words[2] = {__float_as_uint(a), __float_as_uint(b)};
    simt_store_shared(words, 2, shared);
}
SIMT_INLINE void st_shared_v4_b32(uint32_t shared, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    const uint32_t words[4] = {a, b, c, d};
    simt_store_shared(words, 4, shared);
}
SIMT_INLINE void st_shared_v4_f32(uint32_t shared, float a, float b, float c, float d) {
    const uint32_t words[4] = {__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)};
    simt_store_shared(words, 4, shared);
}
SIMT_INLINE void ld_shared_b32(uint32_t& a, uint32_t shared) { simt_load_shared(&a, 1, shared); }
SIMT_INLINE void ld_shared_v2_f32(float& a, float& b, uint32_t shared) {
    uint32_t words[2];
    simt_load_shared(words, 2, shared);
    a = __uint_as_float(words[0]), b = __uint_as_float(words[1]);
}
SIMT_INLINE void ld_shared_v4_f32(float& a, float& b, float& c, float& d, uint32_t shared) {
    uint32_t words[4];
    simt_load_shared(words, 4, shared);
    a = __uint_as_float(words[0]), b = __uint_as_float(words[1]);
    c = __uint_as_float(words[2]), d = __uint_as_float(words[3]);
}
SIMT_INLINE void ld_shared_v4_b32(uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d, uint32_t shared) {
    uint32_t words[4];
    simt_load_shared(words, 4, shared);
    a = words[0], b = words[1], c = words[2], d = words[3];
}

// ---- global memory that other blocks write --------------------------------------------------------------------------

SIMT_INLINE void ld_acquire_gpu_global_u32(uint32_t& value, const uint32_t* p) { value = simt_acquire(p); }
SIMT_INLINE void st_release_gpu_global_u32(uint32_t* p, uint32_t value) { simt_release(p, value); }
SIMT_INLINE void ld_global_cg_v4_f32(float& a, float& b, float& c, float& d, const float* p) {
    struct alignas(16) Words {
        float v[4];
        volatile char whole[0]; // one access: src/translate.rs
    };
    const Words words = *reinterpret_cast<const Words*>(p);
    a = words.v[0], b = words.v[1], c = words.v[2], d = words.v[3];
}

// ---- asynchronous copies ------------------------------------------------------------------------------------------

SIMT_INLINE void cp_async_cg_shared_global(uint32_t shared, const void* global, uint32_t bytes, uint32_t valid_bytes) {
    simt_copy_async(shared, global, bytes, valid_bytes);
}
SIMT_INLINE void cp_async_cg_shared_global(uint32_t shared, const void* global, uint32_t bytes, bool ignored) {
    simt_copy_async(shared, global, bytes, ignored ? 0 : bytes);
}
SIMT_INLINE void cp_async_ca_shared_global(uint32_t shared, const void* global, uint32_t bytes, uint32_t valid_bytes) {
    simt_copy_async(shared, global, bytes, valid_bytes);
}
SIMT_INLINE void cp_async_commit_group() { simt_copy_async_commit(); }
SIMT_INLINE void cp_async_wait_group(uint32_t pending) { simt_copy_async_wait(pending); }

// ---- tensor cores -------------------------------------------------------------------------------------------------

SIMT_INLINE void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3,
                                                          uint32_t shared) {
    uint32_t r[4];
    simt_load_matrix(r, shared, false);
    r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
}
SIMT_INLINE void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3,
                                                                uint32_t shared) {
    uint32_t r[4];
    simt_load_matrix(r, shared, true);
    r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
}
SIMT_INLINE void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3,
                                                                     uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                                     uint32_t b0, uint32_t b1, float c0, float c1,
                                                                     float c2, float c3) {
    const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    const float c[4] = {c0, c1, c2, c3};
    float d[4];
    simt_mma(d, a, b, c);
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}

SIMT_INLINE void mma_sync_aligned_m16n8k32_row_col_s32_s8_s8_s32(int32_t& d0, int32_t& d1, int32_t& d2, int32_t& d3,
                                                                 uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                                 uint32_t b0, uint32_t b1, int32_t c0, int32_t c1,
                                                                 int32_t c2, int32_t c3) {
    const uint32_t a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    const int32_t c[4] = {c0, c1, c2, c3};
    int32_t d[4];
    simt_mma_s8(d, a, b, c);
    d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}

SIMT_INLINE void stmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t shared, uint32_t r0, uint32_t r1, uint32_t r2,
                                                          uint32_t r3) {
    const uint32_t r[4] = {r0, r1, r2, r3};
    simt_store_matrix(r, shared);
}

// ---- registers of an `asm` statement --------------------------------------------------------------------------------

SIMT_INLINE void setp_eq_u32(bool& d, uint32_t a, uint32_t b) { d = a == b; }
SIMT_INLINE void setp_ne_b32(bool& d, uint32_t a, uint32_t b) { d = a != b; }
SIMT_INLINE void selp_u32(uint32_t& d, uint32_t a, uint32_t b, bool p) { d = p ? a : b; }
SIMT_INLINE void mov_b64(uint64_t& d, uint32_t low, uint32_t high) { d = uint64_t(high) << 32 | low; }
SIMT_INLINE void mov_u32(uint32_t& d, uint32_t a) { d = a; }

// ---- Hopper: memory barriers and bulk copies ------------------------------------------------------------------------

SIMT_INLINE void red_global_add_v4_f32(float* p, float a, float b, float c, float d) {
    const float values[4] = {a, b, c, d};
    simt_add(p, values, 4);
}
SIMT_INLINE void mbarrier_init_shared__cta_b64(uint32_t barrier, uint32_t arrivals) {
    simt_hopper_barrier_init(barrier, arrivals);
}
SIMT_INLINE void fence_mbarrier_init_release_cluster() { simt_hopper_barrier_init_fence(); }
SIMT_INLINE void mbarrier_arrive_shared__cta_b64(uint32_t barrier) { simt_hopper_barrier_arrive(barrier, 0); }
SIMT_INLINE void mbarrier_arrive_shared__cluster_b64(uint32_t barrier) { simt_hopper_barrier_arrive(barrier, 0); }
SIMT_INLINE void mbarrier_arrive_expect_tx_shared__cta_b64(uint32_t barrier, uint32_t bytes) {
    simt_hopper_barrier_arrive(barrier, bytes);
}
SIMT_INLINE void mbarrier_try_wait_parity_shared__cta_b64(bool& over, uint32_t barrier, uint32_t parity) {
    over = simt_hopper_barrier_try_wait(barrier, parity);
}
SIMT_INLINE void bar_sync(uint32_t number, uint32_t threads) { simt_hopper_barrier_sync(number, threads); }
SIMT_INLINE void fence_proxy_async_shared__cta() { simt_hopper_fence_proxy(); }
SIMT_INLINE void prefetch_tensormap(const void*) {}
SIMT_INLINE void prefetch_global_L2(const void*) {}
SIMT_INLINE void cp_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(
    uint32_t shared, const void* map, uint32_t x, uint32_t y, uint32_t barrier) {
    simt_hopper_copy_box(shared, map, x, y, barrier, 0);
}
SIMT_INLINE void cp_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes_multicast__cluster(
    uint32_t shared, const void* map, uint32_t x, uint32_t y, uint32_t barrier, uint16_t blocks) {
    simt_hopper_copy_box(shared, map, x, y, barrier, blocks);
}

// ---- Hopper: clusters and registers ---------------------------------------------------------------------------------

SIMT_INLINE uint32_t special_cluster_ctarank() { return simt_hopper_cluster_rank(); }
SIMT_INLINE void mapa_shared__cluster_u32(uint32_t& there, uint32_t shared, uint32_t rank) {
    there = simt_hopper_map_shared(shared, rank);
}
SIMT_INLINE void barrier_cluster_arrive_release() { simt_hopper_cluster_arrive(); }
SIMT_INLINE void barrier_cluster_wait_acquire() { simt_hopper_cluster_wait(); }
SIMT_INLINE void st_async_weak_shared__cluster_mbarrier__complete_tx__bytes_v2_f32(uint32_t shared, float a, float b,
                                                                                   uint32_t barrier) {
    const uint32_t words[2] = {__float_as_uint(a), __float_as_uint(b)};
    simt_hopper_send(shared, words, 2, barrier);
}
SIMT_INLINE void st_async_weak_shared__cluster_mbarrier__complete_tx__bytes_v4_f32(uint32_t shared, float a, float b, float c,
                                                                                   float d, uint32_t barrier) {
    const uint32_t words[4] = {__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)};
    simt_hopper_send(shared, words, 4, barrier);
}
SIMT_INLINE void setmaxnreg_inc_sync_aligned_u32(uint32_t registers) { simt_hopper_set_registers(registers, true); }
SIMT_INLINE void setmaxnreg_dec_sync_aligned_u32(uint32_t registers) { simt_hopper_set_registers(registers, false); }

// ---- Hopper: wgmma --------------------------------------------------------------------------------------------------

SIMT_INLINE void wgmma_fence_sync_aligned() { simt_hopper_wgmma_fence(); }
SIMT_INLINE void wgmma_commit_group_sync_aligned() { simt_hopper_wgmma_commit(); }
SIMT_INLINE void wgmma_wait_group_sync_aligned(uint32_t pending) { simt_hopper_wgmma_wait(pending); }

// The operands of a `wgmma` in the order they are written: sums, A in registers or at a descriptor, the descriptor of B,
// whether to add, signs, and which operands in shared memory run across the depth.
struct Operands {
    simt::Wgmma wgmma = {};
    uint32_t sums = 0, others = 0;
    uint64_t other[8] = {};

    SIMT_PLAIN void take(float& sum) { wgmma.d[sums++] = &sum; }
    SIMT_PLAIN void take(const uint32_t& pair) { wgmma.a[wgmma.a_count++] = &pair; }
    SIMT_PLAIN void take(uint64_t value) { other[others++] = value; }
    SIMT_PLAIN void take(bool value) { other[others++] = value; }
    SIMT_PLAIN void take(int value) { other[others++] = value; }
};
// The addresses of registers are known from here on, so every access to them is looked at. This itself is none.
template <uint32_t columns, typename... T>
__attribute__((noinline, no_sanitize("thread", "alignment"))) void wgmma(T&&... operands) {
    Operands all;
    (all.take(operands), ...);
    const bool of_registers = all.wgmma.a_count == 4;
    static_assert(sizeof...(T) == columns / 2 + 7 || sizeof...(T) == columns / 2 + 9);
    const uint64_t* other = all.other;
    all.wgmma.columns = columns;
    if (!of_registers) all.wgmma.a_at = *other++;
    all.wgmma.b = *other++;
    all.wgmma.add = *other++;
    all.wgmma.plus_a = *other++, all.wgmma.plus_b = *other++;
    if (!of_registers) all.wgmma.a_across = *other++;
    all.wgmma.b_across = *other++;
    simt_hopper_wgmma(&all.wgmma, __builtin_return_address(0));
}
#define SIMT_WGMMA(n) \
    template <typename... T> SIMT_INLINE void wgmma_mma_async_sync_aligned_m64n##n##k16_f32_bf16_bf16(T&&... operands) { \
        wgmma<n>(static_cast<T&&>(operands)...); \
    }
SIMT_WGMMA(64)
SIMT_WGMMA(128)
SIMT_WGMMA(192)
SIMT_WGMMA(224)
SIMT_WGMMA(256)

// The same of s8: sums, both descriptors, whether to add.
struct IntegerOperands {
    simt::Wgmma wgmma = {};
    uint32_t sums = 0, others = 0;
    uint64_t other[3] = {};

    SIMT_PLAIN void take(int32_t& sum) { wgmma.d[sums++] = reinterpret_cast<float*>(&sum); }
    SIMT_PLAIN void take(uint64_t value) { other[others++] = value; }
    SIMT_PLAIN void take(bool value) { other[others++] = value; }
};
template <uint32_t columns, typename... T>
__attribute__((noinline, no_sanitize("thread", "alignment"))) void wgmma_s8(T&&... operands) {
    IntegerOperands all;
    (all.take(operands), ...);
    static_assert(sizeof...(T) == columns / 2 + 3);
    all.wgmma.columns = columns;
    all.wgmma.a_at = all.other[0], all.wgmma.b = all.other[1], all.wgmma.add = all.other[2];
    all.wgmma.plus_a = all.wgmma.plus_b = 1;
    all.wgmma.integers = true;
    simt_hopper_wgmma(&all.wgmma, __builtin_return_address(0));
}
#define SIMT_WGMMA_S8(n) \
    template <typename... T> SIMT_INLINE void wgmma_mma_async_sync_aligned_m64n##n##k32_s32_s8_s8(T&&... operands) { \
        wgmma_s8<n>(static_cast<T&&>(operands)...); \
    }
SIMT_WGMMA_S8(64)
SIMT_WGMMA_S8(128)
SIMT_WGMMA_S8(192)
SIMT_WGMMA_S8(224)
SIMT_WGMMA_S8(256)

} // namespace ptx
