// Rotary embedding backward: the gradient is rotated the other way. See rotate.cuh.
#include "rope/rotate.cuh"

KERNEL(rope_params) { rotate(p, -1.0f); }
