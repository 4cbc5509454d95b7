#include "conv.h"
#include "device.cuh"

KERNEL(conv_bwd_params) {}
