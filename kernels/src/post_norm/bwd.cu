// Backward pass of both norms around an addition: dx, dbranch and partial sums of both gammas' gradients, see bwd.cuh.
// The next row is in flight during the work on one, if registers hold both.
// Bound: memory. Reads dy, dresidual, sum and branch once, writes dx and dbranch once.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "post_norm_bwd.h"
#include "rmsnorm/row.cuh"

enum : bool { AHEAD = sizeof(KEY_X) == sizeof(bf16) && PER_THREAD * WIDTH <= 16 && VARIANT_THREADS <= 256 };

#include "post_norm/bwd.cuh"
