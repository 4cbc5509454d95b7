// Launches that overlap. A kernel that calls begin_early() is placed on multiprocessors while the launch before it
// ends: what it did before the call then costs no time. Source: PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide,
// "Programmatic Dependent Launch and Synchronization".
#pragma once
#include "types.h"

// Waits until the launches before this one have ended and their results are there, then lets the next begin. A thread
// calls it before it touches what the launch in front does: of those before that one all is there, as each waited. Call
// it in kernels whose launches fill the GPU or are short: CTAs of others would crowd on what was idle.
__device__ __forceinline__ void begin_early() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL // sm_90a: no other row was measured
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
