// RMSNorm backward for a frozen gamma with quantization: the result of rmsnorm/dgrad.cu, and int8/quantize.cu of it for
// the gradient of the GEMM below.
// Bound: memory. Reads x, dy (and dresidual) once, writes dx and one byte a value.
// Sources: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; int8/quantize.cu.
#define INT8
enum : unsigned { ROW = KEY_H };
#include "int8/row.cuh"
#include "rmsnorm_dgrad.h"
#include "rmsnorm/dgrad.cuh"
