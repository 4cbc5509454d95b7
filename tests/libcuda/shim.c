/* Sees from outside what a process has the CUDA driver load and launch: with LD_PRELOAD in front of any driver, real or a
 * stand-in. Whoever asks for a driver's function, by dlsym or by cuGetProcAddress, gets the one of this file where there is
 * one: libraries get their functions so as well. It answers as a GB10 does: a load after a graph was launched fails and poisons
 * the context. PRECAST_SHIM_LOG names a file of a line each: load, function, kernel, launch, poison, fill. PRECAST_SHIM_HANGS=adamw puts
 * a kernel that spins into graphs, behind each kernel whose entry symbol begins so; with PRECAST_SHIM_HANGS_AFTER=N it lets the first
 * N launches of them go by. PRECAST_SHIM_FILLS=BYTE is what new device memory holds; PRECAST_SHIM_WAITS=S holds the first launch of a
 * graph back for S seconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define LOG "PRECAST_SHIM_LOG"
#include "poison.h"

/* A function of the driver, this file's in its place, and where the driver has its own. */
typedef struct {
    const char* name;
    void* wrapper;
    void* real;
} hook;

static hook* hook_of(const char* name);

/* What kernels would be loaded for where the driver loads lazily. */
static int on_function(void) {
    log_call("function");
    return on_work();
}

/* A library that runs its kernels itself. */
static int on_kernel(void) {
    log_call("kernel");
    return on_work();
}

/* A tool that keeps a record of memory of its own may still be at it. */
static int on_graph(void) {
    const char* waits = getenv("PRECAST_SHIM_WAITS");
    if (waits && !launched) sleep((unsigned)atoi(waits));
    return on_launch();
}

#define WRAP(name, guard, params, arguments)                    \
    static int name##_wrapper params {                          \
        int error = guard();                                    \
        if (error) return error;                                \
        int (*forward) params = hook_of(#name)->real;           \
        return forward arguments;                               \
    }
/* One that has a variant for a default stream of each thread. */
#define WRAP_STREAM(name, guard, params, arguments) \
    WRAP(name, guard, params, arguments)            \
    WRAP(name##_ptsz, guard, params, arguments)

WRAP(cuDevicePrimaryCtxRelease_v2, on_release, (int device), (device))
WRAP(cuModuleLoad, on_load, (void** module, const char* name), (module, name))
WRAP(cuModuleLoadData, on_load, (void** module, const void* image), (module, image))
WRAP(cuModuleLoadDataEx, on_load, (void** module, const void* image, unsigned count, void* options, void** values), (module, image, count, options, values))
WRAP(cuModuleLoadFatBinary, on_load, (void** module, const void* image), (module, image))
WRAP(cuLibraryLoadData, on_load, (void** library, const void* code, void* jit_options, void** jit_values, unsigned jit, void* options, void** values, unsigned count), (library, code, jit_options, jit_values, jit, options, values, count))
WRAP(cuLibraryLoadFromFile, on_load, (void** library, const char* name, void* jit_options, void** jit_values, unsigned jit, void* options, void** values, unsigned count), (library, name, jit_options, jit_values, jit, options, values, count))
WRAP(cuLinkComplete, on_load, (void* state, void** cubin, size_t* bytes), (state, cubin, bytes))
WRAP(cuModuleGetFunction, on_function, (void** function, void* module, const char* name), (function, module, name))
WRAP(cuLibraryGetModule, on_function, (void** module, void* library), (module, library))
WRAP(cuKernelGetFunction, on_function, (void** function, void* kernel), (function, kernel))
WRAP(cuFuncLoad, on_function, (void* function), (function))
WRAP_STREAM(cuGraphLaunch, on_graph, (void* graph, void* stream), (graph, stream))
WRAP_STREAM(cuLaunchKernel, on_kernel, (void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params, void** extra), (function, gx, gy, gz, bx, by, bz, shared, stream, params, extra))
WRAP_STREAM(cuLaunchKernelEx, on_kernel, (const void* config, void* function, void** params, void** extra), (config, function, params, extra))
WRAP_STREAM(cuLaunchCooperativeKernel, on_kernel, (void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params), (function, gx, gy, gz, bx, by, bz, shared, stream, params))
WRAP(cuMemcpyHtoDAsync_v2, on_work, (unsigned long long to, const void* from, size_t bytes, void* stream), (to, from, bytes, stream))
WRAP(cuMemcpyDtoHAsync_v2, on_work, (void* to, unsigned long long from, size_t bytes, void* stream), (to, from, bytes, stream))
WRAP_STREAM(cuStreamSynchronize, on_work, (void* stream), (stream))
WRAP(cuEventSynchronize, on_work, (void* event), (event))

/* CUDA_KERNEL_NODE_PARAMS_v2. */
typedef struct {
    void* function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
    void *kernel, *context;
} node_params;

static const char SPIN[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 launches;\n"
    ".visible .entry spin(.param .u32 after) {\n.reg .u32 %r<2>;\n.reg .pred %p;\n"
    "ld.param.u32 %r0, [after];\natom.global.add.u32 %r1, [launches], 1;\nsetp.lt.u32 %p, %r1, %r0;\n@%p bra DONE;\n"
    "SPIN:\nnanosleep.u32 1000;\nbra SPIN;\nDONE:\nret;\n}\n";

/* The library that the driver's functions come from. */
static void* driver;
static void* (*real_dlsym(void))(void*, const char*);

/* A function of the driver itself. */
static void* of_driver(const char* name) {
    void* found = real_dlsym()(driver, name);
    if (!found) abort();
    return found;
}

/* The kernel that spins. It is loaded as graphs are made: before the first launch. */
static void* spin(void) {
    static void *module, *function;
    int (*load)(void**, const void*), (*get)(void**, void*, const char*);
    if (function) return function;
    *(void**)&load = of_driver("cuModuleLoadData");
    *(void**)&get = of_driver("cuModuleGetFunction");
    if (load(&module, SPIN) || get(&function, module, "spin")) abort();
    return function;
}

static int is_to_hang(void* function) {
    const char *hangs = getenv("PRECAST_SHIM_HANGS"), *name = NULL;
    int (*name_of)(const char**, void*);
    if (!hangs) return 0;
    *(void**)&name_of = of_driver("cuFuncGetName");
    return !name_of(&name, function) && !strncmp(name, hangs, strlen(hangs));
}

static int cuGraphAddKernelNode_v2_wrapper(void** node, void* graph, void* const* dependencies, size_t count, const node_params* params) {
    int (*forward)(void**, void*, void* const*, size_t, const node_params*) = hook_of("cuGraphAddKernelNode_v2")->real;
    const char* given = getenv("PRECAST_SHIM_HANGS_AFTER");
    unsigned after = given ? (unsigned)atoi(given) : 0;
    void *arguments[] = {&after}, *before;
    node_params spinning = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .params = arguments};
    int error = forward(node, graph, dependencies, count, params);
    if (error || !is_to_hang(params->function)) return error;
    before = *node;
    spinning.function = spin();
    return forward(node, graph, &before, 1, &spinning);
}

static int cuMemAlloc_v2_wrapper(unsigned long long* address, size_t bytes) {
    int (*forward)(unsigned long long*, size_t) = hook_of("cuMemAlloc_v2")->real;
    int (*fill)(unsigned long long, unsigned char, size_t), (*synchronize)(void);
    const char* fills = getenv("PRECAST_SHIM_FILLS");
    int error = forward(address, bytes);
    if (error || !fills) return error;
    log_call("fill");
    *(void**)&fill = of_driver("cuMemsetD8_v2");
    *(void**)&synchronize = of_driver("cuCtxSynchronize");
    if (fill(*address, (unsigned char)atoi(fills), bytes) || synchronize()) abort();
    return 0;
}

enum { PER_THREAD_STREAM = 2 };

/* A function by its first name: versions and streams are chosen by the driver, and the hook follows. */
static void replace(const char* name, void** function, unsigned long long flags) {
    char full[128];
    hook* known;
    snprintf(full, sizeof full, "%s%s", name, flags & PER_THREAD_STREAM ? "_ptsz" : "");
    known = hook_of(full);
    if (!known) known = hook_of(name);
    if (!known || !function || !*function || *function == known->wrapper) return;
    known->real = *function;
    *function = known->wrapper;
}

static int cuGetProcAddress_wrapper(const char* name, void** function, int version, unsigned long long flags) {
    int (*forward)(const char*, void**, int, unsigned long long) = hook_of("cuGetProcAddress")->real;
    int error = forward(name, function, version, flags);
    if (!error) replace(name, function, flags);
    return error;
}

static int cuGetProcAddress_v2_wrapper(const char* name, void** function, int version, unsigned long long flags, int* status) {
    int (*forward)(const char*, void**, int, unsigned long long, int*) = hook_of("cuGetProcAddress_v2")->real;
    int error = forward(name, function, version, flags, status);
    if (error) return error;
    /* Who asks for this function by itself means the version that it asks with. */
    if (!strcmp(name, "cuGetProcAddress")) name = version >= 12000 ? "cuGetProcAddress_v2" : "cuGetProcAddress";
    replace(name, function, flags);
    return 0;
}

#define HOOK(name) {#name, name##_wrapper, NULL}
#define HOOK_STREAM(name) HOOK(name), HOOK(name##_ptsz)

static hook hooks[] = {
    HOOK(cuDevicePrimaryCtxRelease_v2),
    HOOK(cuModuleLoad), HOOK(cuModuleLoadData), HOOK(cuModuleLoadDataEx), HOOK(cuModuleLoadFatBinary),
    HOOK(cuLibraryLoadData), HOOK(cuLibraryLoadFromFile), HOOK(cuLinkComplete),
    HOOK(cuModuleGetFunction), HOOK(cuLibraryGetModule), HOOK(cuKernelGetFunction), HOOK(cuFuncLoad),
    HOOK(cuMemAlloc_v2), HOOK(cuGraphAddKernelNode_v2), HOOK_STREAM(cuGraphLaunch), HOOK_STREAM(cuLaunchKernel), HOOK_STREAM(cuLaunchKernelEx), HOOK_STREAM(cuLaunchCooperativeKernel),
    HOOK(cuMemcpyHtoDAsync_v2), HOOK(cuMemcpyDtoHAsync_v2), HOOK_STREAM(cuStreamSynchronize), HOOK(cuEventSynchronize),
    HOOK(cuGetProcAddress), HOOK(cuGetProcAddress_v2),
};

static hook* hook_of(const char* name) {
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++)
        if (!strcmp(hooks[i].name, name)) return &hooks[i];
    return NULL;
}

/* The C library's own dlsym: since version 2.34 it is part of libc, before of libdl. */
static void* (*real_dlsym(void))(void*, const char*) {
    static void* (*found)(void*, const char*);
    static const char* const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
        *(void**)&found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!found) abort();
    return found;
}

void* dlsym(void* library, const char* name) {
    void* found = real_dlsym()(library, name);
    hook* known = found ? hook_of(name) : NULL;
    if (!known) return found;
    driver = library;
    known->real = found;
    return known->wrapper;
}
