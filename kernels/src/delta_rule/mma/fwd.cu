// Bound: memory.
#include "delta_rule.h"
#include "device.cuh"

KERNEL(delta_rule_fwd_params) {}
