// RMSNorm of a branch, its addition to the residual stream and RMSNorm of the sum: one pass over memory, see fwd.cuh.
// Bound: memory. Reads x and branch once, writes the sum (and y) once.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "post_norm.h"
#include "rmsnorm/row.cuh"
#include "post_norm/fwd.cuh"
