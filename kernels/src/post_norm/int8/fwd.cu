// The pass of post_norm/fwd.cu, its y to rotated int8: int8/quantize.cu of it, rounded before if it is written too.
// Bound: memory. Reads x and branch once, writes the sum and one byte a value (and y).
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_H };
#include "int8/row.cuh"
#include "post_norm.h"
#include "post_norm/fwd.cuh"
