// The pass of post_norm/bwd.cu, and int8/quantize.cu of its dbranch for the gradient of the GEMM below.
// Bound: memory. Reads dy, dresidual, sum and branch once, writes dx, dbranch and one byte a value.
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_H };
#include "int8/row.cuh"
#include "post_norm_bwd.h"

enum : bool { AHEAD = false }; // registers do not hold two rows

#include "post_norm/bwd.cuh"
