// Gate and up projection on tensor cores, gated at the store: y = silu(x wg^T) (x wu^T), nothing else leaves the registers.
