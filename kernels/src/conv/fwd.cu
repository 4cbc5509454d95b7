#include "conv.h"
#include "device.cuh"

KERNEL(conv_fwd_params) {}
