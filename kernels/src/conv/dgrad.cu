#include "conv.h"
#include "device.cuh"

KERNEL(conv_dgrad_params) {}
