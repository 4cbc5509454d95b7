#include "gated_norm.h"
#include "device.cuh"

KERNEL(gated_norm_fwd_params) {}
