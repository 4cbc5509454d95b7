// RMSNorm backward for a frozen gamma: dx alone, with the residual stream's gradient added, in one pass, see dgrad.cuh.
// Bound: memory. Reads x, dy (and dresidual) once, writes dx once.
// Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
#include "rmsnorm_dgrad.h"
#include "rmsnorm/row.cuh"
#include "rmsnorm/dgrad.cuh"
