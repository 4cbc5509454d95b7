/* A libcuda.so that answers as GB10 does around the real driver: linked against libcuda.so.1, so that every
 * function not defined here is the driver's own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

#include "poison.h"

static void* real(const char* name) {
    static void* library;
    if (!library) library = dlopen("libcuda.so.1", RTLD_NOW);
    return dlsym(library, name);
}

#define FORWARD(name, guard, params, arguments)      \
    int name params {                                \
        int error = guard();                         \
        if (error) return error;                     \
        int (*forward) params = real(#name);         \
        return forward arguments;                    \
    }

FORWARD(cuLibraryLoadData, on_load, (void** library, const void* code, void* jit_options, void** jit_values, unsigned jit, void* options, void** values, unsigned count), (library, code, jit_options, jit_values, jit, options, values, count))
FORWARD(cuModuleLoadData, on_load, (void** module, const void* image), (module, image))
FORWARD(cuModuleLoadDataEx, on_load, (void** module, const void* image, unsigned count, void* options, void** values), (module, image, count, options, values))
FORWARD(cuModuleLoad, on_load, (void** module, const char* name), (module, name))
FORWARD(cuModuleLoadFatBinary, on_load, (void** module, const void* image), (module, image))
FORWARD(cuGraphLaunch, on_launch, (void* graph, void* stream), (graph, stream))
FORWARD(cuLaunchKernel, on_launch, (void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params, void** extra), (function, gx, gy, gz, bx, by, bz, shared, stream, params, extra))
FORWARD(cuMemcpyHtoDAsync_v2, on_work, (unsigned long long to, const void* from, size_t bytes, void* stream), (to, from, bytes, stream))
FORWARD(cuMemcpyDtoHAsync_v2, on_work, (void* to, unsigned long long from, size_t bytes, void* stream), (to, from, bytes, stream))
FORWARD(cuStreamSynchronize, on_work, (void* stream), (stream))
FORWARD(cuEventSynchronize, on_work, (void* event), (event))
