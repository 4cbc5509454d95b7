// RMSNorm forward, the residual addition fused in: one pass over memory, see fwd.cuh.
// Bound: memory. Reads x (and delta) once, writes y (and the sum) once.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "rmsnorm.h"
#include "rmsnorm/row.cuh"
#include "rmsnorm/fwd.cuh"
