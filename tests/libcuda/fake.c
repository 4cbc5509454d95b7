/* A libcuda.so without a GPU that looks like a GB10: memory is host memory, which processes can share, streams are threads,
 * kernels do nothing, and a late module load poisons the context. It shows the order in which a program calls the driver on any
 * machine. What kernels would do is done by the functions that precast_fake_kernels is given, or by a library that
 * PRECAST_FAKE_KERNELS names: lib.rs.
 *
 * The environment makes another machine of it: PRECAST_FAKE_DRIVER=12080 what cuDriverGetVersion says,
 * PRECAST_FAKE_GPUS=0 how many there are, PRECAST_FAKE_CAPABILITY=8.6 what they are, PRECAST_FAKE_LAZY=1 a driver
 * that loads kernels at their first launch whatever CUDA_MODULE_LOADING says, PRECAST_FAKE_INTEGRATED=0 a card with a
 * memory of its own, PRECAST_FAKE_FREE_MIB=64 what it says is free of its 8 GiB, or PRECAST_FAKE_TOTAL_GIB, PRECAST_FAKE_ALLOC_BYTES=N where its
 * memory ends, and pinned host memory with it where that is the same, PRECAST_FAKE_FORGETS=1 memory of the device that
 * takes none of the host's, for nothing written to it stays, PRECAST_FAKE_REFUSES=cuIpcGetMemHandle a call that fails,
 * PRECAST_FAKE_FULL=cuLibraryLoadData one that finds no memory for what the driver keeps itself,
 * PRECAST_FAKE_HANGS=adamw kernels that never end, by how their entry symbols begin, or, with PRECAST_FAKE_HANGS_WHILE=FILE,
 * not while the file is there, PRECAST_FAKE_FAILS=adamw kernels that fail as at an illegal address. What is taken is free no more on a card with a memory of its own. Under PRECAST_FAKE_LOG_MEMORY the log also has a line for what is taken and
 * written. */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "calls.h"
#include "memory.h"
#include "stream.h"

#define LOG "PRECAST_LIBCUDA_LOG"
#include "poison.h"

typedef unsigned long long address;

enum { MAX_SHARED = 8, CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76, MULTIPROCESSORS = 16, INTEGRATED = 18 };
enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_CONTEXT = 201, NOT_READY = 600, NOT_SUPPORTED = 801, UNKNOWN = 999 };
enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };
enum { EAGER = 1, LAZY = 2, ACCESS_SUPPORTED = 2 };

static int handles;

static int give(void** handle) {
    *handle = (void*)(size_t)++handles;
    return 0;
}

/* The number in a variable, else another. */
static int number(const char* variable, int otherwise) {
    const char* value = getenv(variable);
    return value ? atoi(value) : otherwise;
}
static int gpus(void) { return number("PRECAST_FAKE_GPUS", 1); }

int cuInit(unsigned flags) { CALL(cuInit, UNKNOWN); return gpus() ? (int)flags : NO_DEVICE; }
int cuDriverGetVersion(int* version) { CALL(cuDriverGetVersion, UNKNOWN); return *version = number("PRECAST_FAKE_DRIVER", 13000), 0; }
int cuDeviceGetCount(int* count) { CALL(cuDeviceGetCount, UNKNOWN); return *count = gpus(), 0; }
int cuModuleGetLoadingMode(int* mode) {
    CALL(cuModuleGetLoadingMode, UNKNOWN);
    const char* asked = getenv("CUDA_MODULE_LOADING");
    *mode = asked && !strcmp(asked, "EAGER") && !getenv("PRECAST_FAKE_LAZY") ? EAGER : LAZY;
    return 0;
}
int cuDeviceGet(int* device, int ordinal) { CALL(cuDeviceGet, UNKNOWN); return *device = ordinal, 0; }
int cuDeviceGetName(char* name, int bytes, int device) {
    CALL(cuDeviceGetName, UNKNOWN);
    (void)device;
    snprintf(name, (size_t)bytes, "NVIDIA GB10 (stand-in)");
    return 0;
}
int cuDeviceGetPCIBusId(char* address, int bytes, int device) {
    CALL(cuDeviceGetPCIBusId, UNKNOWN);
    snprintf(address, (size_t)bytes, "0000:%02x:00.0", 16 + device);
    return 0;
}
static void read_capability(int* major, int* minor) {
    const char* capability = getenv("PRECAST_FAKE_CAPABILITY");
    *major = 12, *minor = 1;
    if (capability) sscanf(capability, "%d.%d", major, minor);
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    CALL(cuDeviceGetAttribute, UNKNOWN);
    int major, minor;
    read_capability(&major, &minor);
    (void)device;
    *value = attribute == CAPABILITY_MAJOR ? major : attribute == CAPABILITY_MINOR ? minor : attribute == INTEGRATED ? number("PRECAST_FAKE_INTEGRATED", 1) : 48;
    return 0;
}
int cuDeviceGetP2PAttribute(int* value, int attribute, int device, int other) {
    CALL(cuDeviceGetP2PAttribute, UNKNOWN);
    (void)device, (void)other;
    return *value = attribute == ACCESS_SUPPORTED, 0;
}
/* A device's primary context is one, however often it is retained. */
static int retained, retained_of[16];
static __thread void* current;
int cuDevicePrimaryCtxRetain(void** context, int device) {
    CALL(cuDevicePrimaryCtxRetain, UNKNOWN);
    retained++, retained_of[device]++;
    *context = (void*)(size_t)(0x1000 + device);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { CALL(cuDevicePrimaryCtxRelease_v2, UNKNOWN); return retained_of[device]--, --retained ? 0 : on_release(); }
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) { CALL(cuDevicePrimaryCtxGetState, UNKNOWN); return *flags = 0, *active = retained_of[device] > 0, 0; }
int cuCtxSetCurrent(void* context) { CALL(cuCtxSetCurrent, UNKNOWN); return context ? current = context, 0 : INVALID_VALUE; }
int cuCtxGetCurrent(void** context) { CALL(cuCtxGetCurrent, UNKNOWN); return *context = current, 0; }
int cuGetErrorName(int error, const char** name) {
    static const struct {
        int error;
        const char* name;
    } all[] = {{INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"}, {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"}, {INVALID_SOURCE, "CUDA_ERROR_INVALID_SOURCE"}, {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"}, {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}};
    *name = "unknown";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].error == error) *name = all[i].name;
    return 0;
}

static int is(const char* variable, const char* call) {
    const char* value = getenv(variable);
    return value && !strcmp(value, call);
}
static int refuses(const char* call) { return is("PRECAST_FAKE_REFUSES", call); }
static int full(const char* call) { return is("PRECAST_FAKE_FULL", call); }

static size_t taken;

int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    CALL(cuMemGetInfo_v2, UNKNOWN);
    int total_gib = number("PRECAST_FAKE_TOTAL_GIB", 8);
    *total_bytes = (size_t)total_gib << 30;
    *free_bytes = (size_t)number("PRECAST_FAKE_FREE_MIB", total_gib << 10) << 20;
    if (!number("PRECAST_FAKE_INTEGRATED", 1)) *free_bytes -= taken < *free_bytes ? taken : *free_bytes;
    return on_work();
}
static void log_memory(const char* what) {
    if (getenv("PRECAST_FAKE_LOG_MEMORY")) log_call(what);
}
static int forgets(void) { return getenv("PRECAST_FAKE_FORGETS") != NULL; }
static int fits(size_t bytes) {
    const char* limit = getenv("PRECAST_FAKE_ALLOC_BYTES");
    if (limit && taken + bytes > strtoull(limit, NULL, 10)) return 0;
    taken += bytes;
    return 1;
}
static int take(const char* what, address* memory, size_t bytes) {
    char line[64];
    if (!fits(bytes)) return OUT_OF_MEMORY;
    snprintf(line, sizeof line, "%s %zu", what, bytes);
    log_memory(line);
    if (forgets()) {
        void* addresses = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        *memory = addresses == MAP_FAILED ? 0 : (address)(size_t)addresses;
    } else {
        *memory = (address)(size_t)memory_take(bytes);
    }
    return *memory ? on_work() : OUT_OF_MEMORY;
}
int cuMemAlloc_v2(address* memory, size_t bytes) { CALL(cuMemAlloc_v2, UNKNOWN); return take("alloc", memory, bytes); }
int cuMemAllocManaged(address* memory, size_t bytes, unsigned flags) {
    CALL(cuMemAllocManaged, UNKNOWN);
    return flags == 1 ? take("managed", memory, bytes) : INVALID_VALUE;
}
int cuMemFree_v2(address memory) {
    CALL(cuMemFree_v2, UNKNOWN);
    settle();
    if (!forgets()) memory_free((void*)(size_t)memory);
    return 0;
}
int cuMemAllocAsync(address* memory, size_t bytes, void* stream) { CALL(cuMemAllocAsync, UNKNOWN); return (void)stream, take("alloc", memory, bytes); }
int cuMemFreeAsync(address memory, void* stream) { CALL(cuMemFreeAsync, UNKNOWN); return stream_wait(stream), cuMemFree_v2(memory); }
int cuMemsetD8Async(address to, unsigned char value, size_t bytes, void* stream) {
    CALL(cuMemsetD8Async, UNKNOWN);
    if (value) return NOT_SUPPORTED;
    stream_copy(stream, (void*)(size_t)to, NULL, bytes, run_zeros);
    return on_work();
}

/* Pinned memory of the host. */
typedef struct pinned {
    const char* at;
    size_t bytes;
    struct pinned* next;
} pinned;
static pinned* pins;

static int is_pinned(const void* at) {
    const pinned* found = pins;
    while (found && ((const char*)at < found->at || (const char*)at >= found->at + found->bytes)) found = found->next;
    return found != NULL;
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
    CALL(cuMemHostAlloc, UNKNOWN);
    pinned* fresh;
    (void)flags;
    if (number("PRECAST_FAKE_INTEGRATED", 1) && !fits(bytes)) return OUT_OF_MEMORY;
    *memory = calloc(bytes, 1);
    log_memory("pin");
    if (!*memory) return OUT_OF_MEMORY;
    fresh = malloc(sizeof *fresh);
    fresh->at = *memory, fresh->bytes = bytes, fresh->next = pins;
    pins = fresh;
    return on_work();
}
int cuMemFreeHost(void* memory) {
    CALL(cuMemFreeHost, UNKNOWN);
    pinned **found = &pins, *gone;
    settle();
    while (*found && (*found)->at != memory) found = &(*found)->next;
    gone = *found;
    if (gone) *found = gone->next, free(gone);
    free(memory);
    return 0;
}
/* Of memory that is not pinned a copy has been read, or is there, when the call returns: as of a real driver. */
int cuMemcpyHtoDAsync_v2(address to, const void* from, size_t bytes, void* stream) {
    CALL(cuMemcpyHtoDAsync_v2, UNKNOWN);
    log_memory("write");
    if (forgets()) return on_work();
    if (is_pinned(from)) stream_copy(stream, (void*)(size_t)to, from, bytes, run_copy);
    else stream_copy_now(stream, (void*)(size_t)to, from, bytes);
    return on_work();
}
int cuMemcpyDtoHAsync_v2(void* to, address from, size_t bytes, void* stream) {
    CALL(cuMemcpyDtoHAsync_v2, UNKNOWN);
    if (forgets()) return unwritten(to, bytes), on_work();
    stream_copy(stream, to, (void*)(size_t)from, bytes, run_copy);
    if (!is_pinned(to)) stream_wait(stream);
    return on_work();
}

/* Memory of another process, and words that devices of several write and wait for. */
int cuIpcGetMemHandle(ipc_handle* handle, address memory) {
    CALL(cuIpcGetMemHandle, UNKNOWN);
    if (refuses("cuIpcGetMemHandle")) return NOT_SUPPORTED;
    return memory_export(handle, (void*)(size_t)memory) ? INVALID_VALUE : on_work();
}
int cuIpcOpenMemHandle_v2(address* memory, ipc_handle handle, unsigned flags) {
    CALL(cuIpcOpenMemHandle_v2, UNKNOWN);
    if (refuses("cuIpcOpenMemHandle")) return NOT_SUPPORTED;
    *memory = flags == 1 ? (address)(size_t)memory_import(&handle) : 0;
    return *memory ? on_work() : INVALID_VALUE;
}
int cuIpcCloseMemHandle(address memory) { CALL(cuIpcCloseMemHandle, UNKNOWN); return memory_free((void*)(size_t)memory), 0; }
int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
    CALL(cuMemHostRegister_v2, UNKNOWN);
    (void)memory, (void)bytes;
    return refuses("cuMemHostRegister") ? NOT_SUPPORTED : flags == 2 ? on_work() : INVALID_VALUE;
}
int cuMemHostGetDevicePointer_v2(address* pointer, void* memory, unsigned flags) { CALL(cuMemHostGetDevicePointer_v2, UNKNOWN); return *pointer = (address)(size_t)memory, (int)flags; }
int cuMemHostUnregister(void* memory) { CALL(cuMemHostUnregister, UNKNOWN); return (void)memory, 0; }
int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void* stream) {
    CALL(cuMemcpyDtoDAsync_v2, UNKNOWN);
    stream_copy(stream, (void*)(size_t)to, (void*)(size_t)from, bytes, run_device_copy);
    return on_work();
}
int cuStreamWriteValue32_v2(void* stream, address at, unsigned value, unsigned flags) {
    CALL(cuStreamWriteValue32_v2, UNKNOWN);
    if (refuses("cuStreamWriteValue32")) return NOT_SUPPORTED;
    if (flags || at % 4) return INVALID_VALUE;
    enqueue(stream, run_write, word_of(at, value));
    return on_work();
}
int cuStreamWaitValue32_v2(void* stream, address at, unsigned value, unsigned flags) {
    CALL(cuStreamWaitValue32_v2, UNKNOWN);
    if (flags || at % 4) return INVALID_VALUE;
    enqueue(stream, run_wait, word_of(at, value));
    return on_work();
}

int cuStreamCreate(void** stream, unsigned flags) { CALL(cuStreamCreate, UNKNOWN); return (void)flags, stream_create(stream); }
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) { CALL(cuStreamCreateWithPriority, UNKNOWN); return (void)flags, (void)priority, stream_create(stream); }
int cuCtxGetStreamPriorityRange(int* least, int* greatest) { CALL(cuCtxGetStreamPriorityRange, UNKNOWN); return *least = 0, *greatest = -1, 0; }
int cuStreamSynchronize(void* stream) { CALL(cuStreamSynchronize, UNKNOWN); return stream_wait(stream), on_work(); }
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) { CALL(cuStreamWaitEvent, UNKNOWN); return stream_follow(stream, event), (int)flags; }
int cuStreamDestroy_v2(void* stream) { CALL(cuStreamDestroy_v2, UNKNOWN); return stream_wait(stream), 0; }
int cuEventCreate(void** made, unsigned flags) { CALL(cuEventCreate, UNKNOWN); return (void)flags, *made = calloc(1, sizeof(event)), 0; }
int cuEventRecord(void* event, void* stream) { CALL(cuEventRecord, UNKNOWN); return event_record(event, stream), on_work(); }
int cuEventQuery(void* event) { CALL(cuEventQuery, UNKNOWN); return event_has_passed(event) ? on_work() : NOT_READY; }
int cuEventSynchronize(void* event) { CALL(cuEventSynchronize, UNKNOWN); return event_wait(event), on_work(); }
int cuEventElapsedTime_v2(float* ms, void* start, void* stop) {
    CALL(cuEventElapsedTime_v2, UNKNOWN);
    double between = ((event*)stop)->passed_ms - ((event*)start)->passed_ms;
    return *ms = between > 1e-3 ? (float)between : 1e-3f, on_work();
}
/* A stream may still come to it. */
int cuEventDestroy_v2(void* event) { CALL(cuEventDestroy_v2, UNKNOWN); return (void)event, 0; }

int cuLibraryLoadData(void** library, const void* code, void* jit_options, void** jit_values, unsigned jit, void* options, void** values, unsigned count) {
    CALL(cuLibraryLoadData, UNKNOWN);
    (void)jit_options, (void)jit_values, (void)options, (void)values;
    int error = on_load();
    if (error) return error;
    /* A cubin: an ELF file for machine 190. No options, so nothing that could compile. */
    const unsigned char* elf = code;
    if (full("cuLibraryLoadData")) return OUT_OF_MEMORY;
    if (memcmp(elf, "\x7f" "ELF", 4) || elf[18] != 190 || jit || count) return INVALID_VALUE;
    return give(library);
}
int cuLibraryUnload(void* library) { CALL(cuLibraryUnload, UNKNOWN); return (void)library, 0; }

/* What does a kernel's work, by its entry symbol, how many bytes its parameters have, how much shared memory it may be launched
 * with, and whether it hangs or fails. */
typedef struct kernel {
    void* work;
    size_t bytes;
    unsigned shared;
    int hangs, fails, updates;
    struct kernel* older;
} kernel;

static kernel* newest_kernel;

/* A kernel at work. */
typedef struct {
    void* work;
    /* Grid, block, bytes of dynamic shared memory. */
    unsigned geometry[7];
    char params[];
} launch;

static void* (*kernel_open)(const char*, size_t*);
static void (*kernel_gather)(void*, void**, void*);
static void (*kernel_run)(void*, const void*, const unsigned*);

/* What opens a kernel by its entry symbol, and says the bytes of its parameters, what gathers these from the address of
   each, and what runs one, on a grid and blocks. */
void precast_fake_kernels(void* (*open)(const char*, size_t*), void (*gather)(void*, void**, void*), void (*run)(void*, const void*, const unsigned*)) {
    kernel_open = open, kernel_gather = gather, kernel_run = run;
}

/* 0 where it is known what kernels do, or nobody says. */
static int find_kernels(void) {
    const char* path = getenv("PRECAST_FAKE_KERNELS");
    void* library;
    if (kernel_open || !path) return 0;
    library = dlopen(path, RTLD_NOW);
    if (!library) return INVALID_VALUE;
    *(void**)&kernel_open = dlsym(library, "kernel_open");
    *(void**)&kernel_gather = dlsym(library, "kernel_gather");
    *(void**)&kernel_run = dlsym(library, "kernel_run");
    return kernel_open && kernel_gather && kernel_run ? 0 : INVALID_VALUE;
}
static void run_kernel(void* data) {
    const launch* one = data;
    kernel_run(one->work, one->params, one->geometry);
}
static void run_kernel_once(void* data) { run_kernel(data), free(data); }

static void run_hang(void* data) {
    const char* file = getenv("PRECAST_FAKE_HANGS_WHILE");
    (void)data;
    while (!file || access(file, F_OK) == 0) usleep(1000);
}

static void run_failure(void* data) {
    (void)data;
    poisoned = failed = 1;
}
/* Kernels do nothing, but a run whose weights end as they began fails: an update is of the first master weight. */
static void run_update(void* master) { *(unsigned*)master += 1u << 16; }

/* Whether a variable names kernels like this one. */
static int names(const char* variable, const char* kernel) {
    const char* value = getenv(variable);
    return value && !strncmp(kernel, value, strlen(value));
}

int cuLibraryGetKernel(void** found, void* library, const char* name) {
    CALL(cuLibraryGetKernel, UNKNOWN);
    kernel* fresh = calloc(1, sizeof *fresh);
    (void)library;
    fresh->hangs = names("PRECAST_FAKE_HANGS", name);
    fresh->fails = names("PRECAST_FAKE_FAILS", name);
    fresh->updates = !strncmp(name, "adamw", 5);
    fresh->shared = 48 * 1024;
    fresh->older = newest_kernel, newest_kernel = fresh;
    if (find_kernels()) return INVALID_VALUE;
    if (kernel_open) fresh->work = kernel_open(name, &fresh->bytes);
    return *found = fresh, kernel_open && !fresh->work ? INVALID_VALUE : 0;
}
int cuKernelGetFunction(void** function, void* kernel) { CALL(cuKernelGetFunction, UNKNOWN); return *function = kernel, 0; }
int cuFuncLoad(void* function) { CALL(cuFuncLoad, UNKNOWN); return (void)function, on_work(); }
int cuFuncSetAttribute(void* function, int attribute, int value) {
    CALL(cuFuncSetAttribute, UNKNOWN);
    int major, minor;
    read_capability(&major, &minor);
    if (attribute != MAX_SHARED || value > (major == 9 ? 227 : 99) * 1024) return INVALID_VALUE;
    ((kernel*)function)->shared = (unsigned)value;
    return on_work();
}

typedef struct {
    call* calls;
    size_t count;
} graph_of_calls;

/* What the one stream that captures has captured; null once the capture is invalid. */
static graph_of_calls* captured;
static int is_capturing;
static void* capturing;

static void append(graph_of_calls* to, const call* calls, size_t count) {
    to->calls = realloc(to->calls, (to->count + count + 1) * sizeof *calls);
    memcpy(to->calls + to->count, calls, count * sizeof *calls);
    to->count += count;
}

/* A launch of a kernel, with a copy of its parameters. */
static launch* launch_of(const kernel* function, const unsigned geometry[7], void** params) {
    launch* one = calloc(1, sizeof *one + function->bytes);
    one->work = function->work;
    memcpy(one->geometry, geometry, sizeof one->geometry);
    kernel_gather(one->work, params, one->params);
    return one;
}

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params, void** extra) {
    CALL(cuLaunchKernel, UNKNOWN);
    const kernel* known = newest_kernel;
    int is_captured = is_capturing && stream == capturing, error = 0;
    call one;
    (void)extra;
    while (known && known != function) known = known->older;
    if (is_captured && !captured) return CAPTURE_INVALIDATED;
    /* What stand-ins for libraries launch is a function of theirs. */
    if (!known) {
        *(void**)&one.run = function;
        one.data = params;
    } else {
        if (shared > known->shared) return INVALID_VALUE;
        if (!is_captured) error = on_launch();
        if (error || !known->work) return error;
        one.run = is_captured ? run_kernel : run_kernel_once;
        one.data = launch_of(known, (unsigned[]){gx, gy, gz, bx, by, bz, shared}, params);
    }
    if (is_captured) append(captured, &one, 1);
    else enqueue(stream, one.run, one.data);
    return on_work();
}
int cuStreamIsCapturing(void* stream, int* status) {
    CALL(cuStreamIsCapturing, UNKNOWN);
    *status = is_capturing && stream == capturing ? captured ? 1 : 2 : 0;
    return 0;
}
int cuStreamBeginCapture_v2(void* stream, int mode) {
    CALL(cuStreamBeginCapture_v2, UNKNOWN);
    (void)mode;
    if (is_capturing || !stream) return INVALID_VALUE;
    captured = calloc(1, sizeof *captured);
    is_capturing = 1, capturing = stream;
    return on_work();
}
int cuStreamEndCapture(void* stream, void** graph) {
    CALL(cuStreamEndCapture, UNKNOWN);
    if (!is_capturing || stream != capturing) return INVALID_VALUE;
    *graph = captured;
    captured = NULL, is_capturing = 0;
    return *graph ? on_work() : CAPTURE_INVALIDATED;
}
/* Who waits for a context makes what one of its streams captures invalid. */
int cuCtxSynchronize(void) {
    CALL(cuCtxSynchronize, UNKNOWN);
    if (!current) return INVALID_CONTEXT;
    if (is_capturing) return captured = NULL, CAPTURE_UNSUPPORTED;
    log_call("wait");
    all_streams_wait();
    return on_work();
}

int cuGraphCreate(void** graph, unsigned flags) { CALL(cuGraphCreate, UNKNOWN); return (void)flags, *graph = calloc(1, sizeof(graph_of_calls)), 0; }
int cuGraphAddChildGraphNode(void** node, void* graph, void* const* dependencies, size_t count, void* child) {
    CALL(cuGraphAddChildGraphNode, UNKNOWN);
    const graph_of_calls* of_child = child;
    for (size_t i = 0; i < count; i++)
        if (!dependencies[i]) return INVALID_VALUE;
    append(graph, of_child->calls, of_child->count);
    return give(node);
}
int cuGraphAddKernelNode_v2(void** node, void* graph, void* const* dependencies, size_t count, const void* params) {
    CALL(cuGraphAddKernelNode_v2, UNKNOWN);
    const struct {
        const kernel* function;
        unsigned geometry[7];
        void** params;
    }* given = params;
    for (size_t i = 0; i < count; i++)
        if (!dependencies[i]) return INVALID_VALUE;
    if (given->function->hangs) {
        call hang = {run_hang, NULL};
        append(graph, &hang, 1);
    }
    if (given->function->fails) {
        call failure = {run_failure, NULL};
        append(graph, &failure, 1);
    }
    if (given->geometry[6] > given->function->shared) return INVALID_VALUE;
    if (given->function->work) {
        call run = {run_kernel, launch_of(given->function, given->geometry, given->params)};
        append(graph, &run, 1);
    } else if (given->function->updates && !forgets()) {
        call update = {run_update, (void*)(size_t)((const address*)given->params[0])[3]};
        append(graph, &update, 1);
    }
    return give(node);
}
/* Nothing here reads a tensor map. */
int cuTensorMapEncodeTiled(void* map) {
    CALL(cuTensorMapEncodeTiled, UNKNOWN);
    return map ? 0 : INVALID_VALUE;
}
/* Nodes run in the order in which they are added, so an edge changes nothing: it is of a launch that waits itself. */
int cuGraphAddDependencies_v2(void* graph, void* const* from, void* const* to, const void* edges, size_t count) {
    CALL(cuGraphAddDependencies_v2, UNKNOWN);
    enum { PROGRAMMATIC = 1 };
    const unsigned char* of_edge = edges; /* from_port, to_port, type */
    int is_programmatic = of_edge[0] == PROGRAMMATIC && of_edge[1] == 0 && of_edge[2] == PROGRAMMATIC;
    return graph && from[0] && to[0] && count == 1 && is_programmatic ? 0 : INVALID_VALUE;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
    CALL(cuGraphInstantiateWithFlags, UNKNOWN);
    const graph_of_calls* from = graph;
    graph_of_calls* copy = calloc(1, sizeof *copy);
    (void)flags;
    if (full("cuGraphInstantiate")) return OUT_OF_MEMORY;
    append(copy, from->calls, from->count);
    *executable = copy;
    return 0;
}
int cuGraphUpload(void* executable, void* stream) { CALL(cuGraphUpload, UNKNOWN); return (void)executable, (void)stream, full("cuGraphUpload") ? OUT_OF_MEMORY : on_work(); }
static void run_graph(void* data) {
    const graph_of_calls* graph = data;
    for (size_t i = 0; i < graph->count && !failed; i++) graph->calls[i].run(graph->calls[i].data);
}
int cuGraphLaunch(void* executable, void* stream) {
    CALL(cuGraphLaunch, UNKNOWN);
    int error = on_launch();
    if (!error) enqueue(stream, run_graph, executable);
    return error;
}
static int drop_graph(void* graph) {
    free(((graph_of_calls*)graph)->calls);
    free(graph);
    return 0;
}
int cuGraphDestroy(void* graph) { CALL(cuGraphDestroy, UNKNOWN); return drop_graph(graph); }
int cuGraphExecDestroy(void* executable) { CALL(cuGraphExecDestroy, UNKNOWN); return settle(), drop_graph(executable); }

/* A function by its first name, as libraries ask for it: no symbol is looked up. */
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, int* status) {
    static const struct {
        const char* name;
        void* function;
    } all[] = {{"cuLibraryLoadData", cuLibraryLoadData}, {"cuMemAlloc", cuMemAlloc_v2}, {"cuLaunchKernel", cuLaunchKernel}, {"cuStreamIsCapturing", cuStreamIsCapturing}};
    (void)version, (void)flags;
    *function = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, name)) *function = all[i].function;
    if (status) *status = *function ? 0 : 1;
    return 0;
}
int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
