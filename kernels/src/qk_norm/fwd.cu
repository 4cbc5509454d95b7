// RMSNorm and rotary embedding of the query and key heads of sequences. See normalize.cuh.
// Bound: memory. Reads and writes queries and keys once.
#include "qk_norm/normalize.cuh"

KERNEL(qk_norm_fwd_params) { normalize(p); }
