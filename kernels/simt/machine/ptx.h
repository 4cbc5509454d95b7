// PTX instructions as functions of the same name, operands in the order they are written: what `asm` statements become.
// An instruction that is missing here does not compile.
#pragma once
#include <stdint.h>

extern "C" {
void simt_copy_async(uint32_t shared, const void* global, uint32_t bytes, uint32_t valid_bytes);
void simt_copy_async_commit();
void simt_copy_async_wait(uint32_t pending);
void simt_load_matrix(uint32_t* r, uint32_t shared, bool transposed);
void simt_mma(float* d, const uint32_t* a, const uint32_t* b, const float* c);
void simt_load_shared(uint32_t* words, uint32_t count, uint32_t shared);
void simt_store_shared(const uint32_t* words, uint32_t count, uint32_t shared);
uint32_t simt_acquire(const uint32_t* p);
void simt_release(uint32_t* p, uint32_t value);
float exp2f(float);
}

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
SIMT_INLINE void rcp_approx_f32(float& d, float a) { d = 1.0f / a; }
SIMT_INLINE void rcp_approx_ftz_f32(float& d, float a) { d = flushed(1.0f / flushed(a)); }
SIMT_INLINE void sqrt_approx_ftz_f32(float& d, float a) { d = flushed(sqrtf(flushed(a))); }
SIMT_INLINE void ex2_approx_ftz_f32(float& d, float a) { d = flushed(exp2f(flushed(a))); }
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

} // namespace ptx
