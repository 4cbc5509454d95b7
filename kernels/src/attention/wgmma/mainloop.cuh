// The mainloop of attention on wgmma, a part of a kernel's body: a function around it would be other machine code. The
// 64 rows of a warpgroup, at `q`, attend to the tiles of keys and values from `first_tile` up to `tiles`, which
// `copy_stage` copies one tile ahead into `stages`; the copy of the first has started. p v of one tile overlaps q k^T
// of the next, and other warpgroups issue wgmma while one takes exponentials. Bits follow from KEYS, the keys of a
// tile, and from no other size: not from warpgroups, nor from stages. Wide heads have half a stage beside two, which
// goes round: the values of the tile before are still read when the next tile arrives, its keys are not.
// Of the kernel: `position`, those of this thread's two rows; `first_position` and `last_position` of the warpgroup's.
    float o[CHUNKS][4] = {};
    OnlineSoftmax softmax;
    const auto slot_after = [&](uint32_t slot) {
        return slot == stages + 2 * STAGES * TILE_BYTES ? stages : slot + TILE_BYTES;
    };
    const auto after = [&](uint32_t stage) {
        if (WIDE) return slot_after(slot_after(stage));
        return stage == stages + (STAGES - 1) * 2 * TILE_BYTES ? stages : stage + 2 * TILE_BYTES;
    };
    const auto values_of = [&](uint32_t stage) { return WIDE ? slot_after(stage) : stage + TILE_BYTES; };
    // That there is a first tile the compiler must know, or it serializes the wgmma.
    for (uint32_t tile = first_tile, k = stages; tile == first_tile || tile < tiles; tile++, k = after(k)) {
        cp_async_wait<0>();
        fence_proxy_async();
        sync_block(); // this tile has arrived, and the one before the last has been read
        const uint32_t k0 = tile * KEYS, v = values_of(k);
        // To this warpgroup. Behind its last visible tile none is, and before its first none has been multiplied.
        const bool visible = k0 <= last_position && k0 + (KEYS - 1) >= first_key(first_position);

        float s[N][4];
        if (visible) {
            wgmma_fence();
#pragma unroll
            for (uint32_t step = 0; step < STEPS; step++)
                wgmma<false, false>(s, k_major<64>(q, step), k_major<KEYS>(k, step), step > 0);
            wgmma_commit();
        }
        const uint32_t next = after(k);
        copy_stage(tile + 1, next, values_of(next)); // while the wgmma are in flight
        if (!visible) continue;
        wgmma_wait<0>();
        wgmma_fence_operand(s);
        wgmma_fence_operand(o);

        if (k0 + KEYS > first_position + 1 || k0 < first_key(last_position)) { // an edge
#pragma unroll
            for (uint32_t n = 0; n < N; n++)
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) {
                    const uint32_t key = k0 + n * 8 + lane % 4 * 2 + e % 2, query = position[e / 2];
                    if (key > query || key < first_key(query)) s[n][e] = NEGATIVE_INFINITY;
                }
        }

#pragma unroll
        for (uint32_t half = 0; half < 2; half++) softmax.update(s, half, scale_log2);
        if (any_lane(softmax.rescale[0] != 1.0f || softmax.rescale[1] != 1.0f)) { // rarely, once the maximum has been seen
#pragma unroll
            for (uint32_t n = 0; n < CHUNKS; n++)
#pragma unroll
                for (uint32_t e = 0; e < 4; e++) o[n][e] *= softmax.rescale[e / 2];
        }

        uint32_t a[KEYS / 16][4];
#pragma unroll
        for (uint32_t step = 0; step < KEYS / 16; step++) pack_a(a[step], s, step);
        wgmma_fence_operand(o);
        wgmma_fence();
#pragma unroll
        for (uint32_t step = 0; step < KEYS / 16; step++) wgmma<true>(o, a[step], mn_major<KEYS>(v, step), true);
        wgmma_commit();
    }
    wgmma_wait<0>();
    wgmma_fence_operand(o);
