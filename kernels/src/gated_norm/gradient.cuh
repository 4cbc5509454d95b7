// Gradient through the gate and the norm of a head, in the lanes that share it. The norm's scale and the gate's sigmoid
// follow from operands that are read anyway.
#pragma once
#include "gated_norm/head.cuh"

// The lane's elements of a head; zeros if not `valid`.
struct Share {
    Vector x, gates, dy;

    template <typename Params>
    __device__ __forceinline__ void load(const Params& p, const Place& at, bool valid) {
        x = {}, gates = {}, dy = {};
        if (valid) {
            x = load_vector<WIDTH>((const KEY_X*)p.x + at.head, 0);
            dy = load_vector<WIDTH>((const KEY_X*)p.dy + at.head, 0);
            gates = at.load_gates((const KEY_X*)p.gates);
        }
    }
};

struct Gradient {
    float dx[WIDTH], dgates[WIDTH], dgamma[WIDTH];

    // All lanes of a warp call it.
    __device__ __forceinline__ Gradient(const Share& head, const Vector& gamma, float eps) {
        const float rstd = rstd_of(head.x, eps);
        float dn[WIDTH], dot = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) {
            const float gate = head.gates[i], s = gate_sigmoid(gate);
            const float n = head.x[i] * rstd, rounded = round_to<KEY_X>(n);
            dgates[i] = head.dy[i] * gamma[i] * rounded * (s * gate_slope(gate, s));
            dn[i] = head.dy[i] * (gate * s);
            dgamma[i] = dn[i] * rounded;
            dot += gamma[i] * dn[i] * n;
        }
        const float mean = group_sum<LANES>(dot) / KEY_D;
#pragma unroll
        for (uint32_t i = 0; i < WIDTH; i++) dx[i] = rstd * (gamma[i] * dn[i] - head.x[i] * rstd * mean);
    }

    template <typename Params> __device__ __forceinline__ void store(const Params& p, const Place& at) const {
        store_vector((KEY_X*)p.dx + at.head, 0, dx);
        at.store_gates((KEY_X*)p.dgates, dgates);
    }
};
