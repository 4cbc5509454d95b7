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

#endif
