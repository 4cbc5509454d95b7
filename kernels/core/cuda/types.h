/* Types every parameter block is made of. Included by the CUDA sources and, through bindgen, by Rust. */
#ifndef PRECAST_TYPES_H
#define PRECAST_TYPES_H

#ifdef __CUDACC_RTC__
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#endif

/* A device address. The dtype of what it points at follows from the key, so the block does not repeat it. */
typedef uint64_t address;

/// A CUtensorMap: how a box of a matrix is copied. Opaque: the CUDA driver fills it in when a launch is prepared, for the
/// variants that use it; elsewhere it is zero.
typedef struct tensor_map {
    uint64_t opaque[16];
} __attribute__((aligned(64))) tensor_map;

#endif
