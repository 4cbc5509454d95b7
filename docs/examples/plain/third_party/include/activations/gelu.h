// A library of headers that this program did not write.
#ifndef ACTIVATIONS_GELU_H
#define ACTIVATIONS_GELU_H
#include "constants.h"

namespace activations {
template <typename T> __device__ T gelu(T x) {
    return (T)0.5 * x * ((T)1 + (T)erf(x * (T)ACTIVATIONS_SQRT_HALF));
}
}  // namespace activations

#endif
