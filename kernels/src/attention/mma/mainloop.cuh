// The mainloop of attention on mma.sync, a part of a kernel's body: a function around it would be other machine code.
// The 16 * M queries of a warp, at `own_q`, attend to tiles of `keys` and `values` from `begin` up to `end`, which the
// CTA copies one tile ahead into two `stages`; the copy of the first has started. Probabilities replace scores in
// registers, as operand a of the second GEMM. Bits follow from KEYS, the keys of a tile, and from no other size: not
// from M, nor from warps.
// Of the source that includes it: `own`, the position of the warp's first query; `QUERY(row)`, that of one of its rows;
// `SEQ_LEN`, the positions that exist.
    float o[M][CHUNKS][4] = {};
    OnlineSoftmax softmax[M];
    uint32_t q_all[Q_IN_REGISTERS ? STEPS : 1][M][4];

    for (uint32_t k0 = begin, stage = 0; k0 < end; k0 += KEYS, stage ^= 1) {
        cp_async_wait<0>();
        sync_block(); // this tile is there, and the other stage has been read
        if (k0 + KEYS < end) {
            const uint32_t next = stages + (stage ^ 1) * 2 * TILE_BYTES;
            copy_rows<KEYS>(next, keys, k0 + KEYS, SEQ_LEN);
            copy_rows<KEYS>(next + TILE_BYTES, values, k0 + KEYS, SEQ_LEN);
        }
        cp_async_commit();
        if (Q_IN_REGISTERS && k0 == begin) {
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++)
#pragma unroll
                for (uint32_t i = 0; i < M; i++) load_a(q_all[Q_IN_REGISTERS ? step : 0][i], own_q + i * 16 * PITCH, step);
        }
        if (k0 >= own + ROWS || k0 + (KEYS - 1) < first_key(own)) continue; // nothing visible to this warp
        const uint32_t k = stages + stage * 2 * TILE_BYTES, v = k + TILE_BYTES;

        float s[M][N][4] = {};
#pragma unroll
        for (uint32_t step = 0; step < STEPS; step++) {
            if (!Q_IN_REGISTERS) {
#pragma unroll
                for (uint32_t i = 0; i < M; i++) load_a(q_all[0][i], own_q + i * 16 * PITCH, step);
            }
#pragma unroll
            for (uint32_t n = 0; n < N; n += 2) {
                uint32_t b[4];
                load_b(b, k + n * 8 * PITCH, step);
#pragma unroll
                for (uint32_t i = 0; i < M; i++) {
                    const uint32_t(&a)[4] = q_all[Q_IN_REGISTERS ? step : 0][i];
                    mma(s[i][n], a, b[0], b[1]);
                    mma(s[i][n + 1], a, b[2], b[3]);
                }
            }
        }

        if (k0 + KEYS > own + 1 || k0 < first_key(own + ROWS - 1)) { // an edge
#pragma unroll
            for (uint32_t i = 0; i < M; i++)
#pragma unroll
                for (uint32_t n = 0; n < N; n++)
#pragma unroll
                    for (uint32_t e = 0; e < 4; e++) {
                        const uint32_t key = k0 + n * 8 + lane % 4 * 2 + e % 2;
                        const uint32_t query = QUERY(i * 16 + lane / 4 + e / 2 * 8);
                        if (key > query || key < first_key(query)) s[i][n][e] = NEGATIVE_INFINITY;
                    }
        }

#pragma unroll
        for (uint32_t i = 0; i < M; i++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                softmax[i].update(s[i], half, scale_log2);
                const float rescale = softmax[i].rescale[half];
                if (KEY_D > 128 && !any_lane(rescale != 1.0f)) continue; // mostly, once the maximum has been seen
#pragma unroll
                for (uint32_t n = 0; n < CHUNKS; n++) o[i][n][2 * half] *= rescale, o[i][n][2 * half + 1] *= rescale;
            }

#pragma unroll
        for (uint32_t step = 0; step < KEYS / 16; step++) {
            uint32_t a[M][4];
#pragma unroll
            for (uint32_t i = 0; i < M; i++) pack_a(a[i], s[i], step);
#pragma unroll
            for (uint32_t n = 0; n < CHUNKS; n += 2) {
                uint32_t b[4];
                load_b_transposed(b, v + step * 16 * PITCH, n / 2);
#pragma unroll
                for (uint32_t i = 0; i < M; i++) {
                    mma(o[i][n], a[i], b[0], b[1]);
                    mma(o[i][n + 1], a[i], b[2], b[3]);
                }
            }
        }
    }
