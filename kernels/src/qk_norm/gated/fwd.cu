#include "qk_norm_gated.h"
#include "device.cuh"

KERNEL(qk_norm_gated_fwd_params) {}
