// RMSNorm forward to rotated int8, the residual addition fused in: int8/quantize.cu of the rows of rmsnorm/fwd.cu,
// rounded before if they are written too.
// Bound: memory. Reads x (and delta) once, writes one byte a value (and y, and the sum).
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_H };
#include "int8/row.cuh"
#include "rmsnorm.h"
#include "rmsnorm/fwd.cuh"
