// Gradient through the rotary embedding and the norm of a head, in the lanes that share it. The norm's scale follows
// from the head, which is read anyway.
#pragma once
#include "qk_norm/gated/head.cuh"

struct Gradient {
    float a[WIDTH], b[WIDTH], dgamma_a[WIDTH], dgamma_b[WIDTH];

    // All lanes of a warp call it.
    __device__ __forceinline__ Gradient(const Pair& x, const Pair& dy, const Angles& turn, const Pair& gamma,
                                        float eps) {
        float da[WIDTH], db[WIDTH], dot = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            da[i] = dy.a[i] * turn.cos[i] + dy.b[i] * turn.sin[i];
            db[i] = dy.b[i] * turn.cos[i] - dy.a[i] * turn.sin[i];
            dot += gamma_of(gamma.a[i]) * da[i] * x.a[i] + gamma_of(gamma.b[i]) * db[i] * x.b[i];
        }
        const float rstd = x.rstd(eps);
        const float mean = group_sum<LANES>(dot) * rstd / KEY_D;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            const float na = x.a[i] * rstd, nb = x.b[i] * rstd;
            dgamma_a[i] = da[i] * na;
            dgamma_b[i] = db[i] * nb;
            a[i] = rstd * (gamma_of(gamma.a[i]) * da[i] - na * mean);
            b[i] = rstd * (gamma_of(gamma.b[i]) * db[i] - nb * mean);
        }
    }
};
