#include "output_gate.h"
#include "device.cuh"

KERNEL(output_gate_bwd_params) {}
