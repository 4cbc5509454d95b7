/* Memory of the stand-in's device: the host's, in files without a name, so that another process can open it as it opens memory
 * of a GPU. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    char reserved[64];
} ipc_handle;

/* What a handle says. */
typedef struct {
    uint64_t bytes;
    int process, file;
} exported;

typedef struct allocation {
    void* at;
    exported what;
    struct allocation* next;
} allocation;

static allocation* allocations;
static pthread_mutex_t memory = PTHREAD_MUTEX_INITIALIZER;

static void remember(allocation* fresh) {
    pthread_mutex_lock(&memory);
    fresh->next = allocations;
    allocations = fresh;
    pthread_mutex_unlock(&memory);
}

static allocation** allocation_at(const void* at) {
    allocation** found = &allocations;
    while (*found && (*found)->at != at) found = &(*found)->next;
    return found;
}

/* Memory that nothing has written: small numbers, and every fourth word zero. As `step_metrics` they are a loss and the norm of
 * a gradient, of a step that was not skipped, so that a run goes on whose kernels do nothing. */
static void unwritten(void* at, size_t bytes) {
    static const uint32_t words[4] = {0, 0x3c3c3c3c, 0x3c3c3c3c, 0x3c3c3c3c};
    size_t whole = bytes / sizeof words * sizeof words;
    for (size_t done = 0; done < whole; done += sizeof words) memcpy((char*)at + done, words, sizeof words);
    memcpy((char*)at + whole, words, bytes - whole);
}

static void* memory_take(size_t bytes) {
    int file = memfd_create("device memory", MFD_CLOEXEC);
    void* at = file < 0 || ftruncate(file, (off_t)bytes) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    allocation* fresh = calloc(1, sizeof *fresh);
    if (at == MAP_FAILED) return NULL;
    unwritten(at, bytes);
    fresh->at = at, fresh->what.bytes = bytes, fresh->what.process = getpid(), fresh->what.file = file;
    remember(fresh);
    return at;
}

static void memory_free(void* at) {
    allocation **found, *gone;
    pthread_mutex_lock(&memory);
    found = allocation_at(at), gone = *found;
    if (gone) *found = gone->next;
    pthread_mutex_unlock(&memory);
    if (!gone) return;
    munmap(at, gone->what.bytes);
    close(gone->what.file);
    free(gone);
}

static int memory_export(ipc_handle* handle, const void* at) {
    const allocation* known = *allocation_at(at);
    if (known) memcpy(handle, &known->what, sizeof known->what);
    return known ? 0 : -1;
}

/* Another process's; its own is refused, as CUDA does. */
static void* memory_import(const ipc_handle* handle) {
    exported what;
    char path[64];
    void* at;
    int file;
    allocation* fresh = calloc(1, sizeof *fresh);
    memcpy(&what, handle, sizeof what);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", what.process, what.file);
    file = what.process == getpid() ? -1 : open(path, O_RDWR | O_CLOEXEC);
    at = file < 0 ? MAP_FAILED : mmap(NULL, what.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) return NULL;
    what.file = file;
    fresh->at = at, fresh->what = what;
    remember(fresh);
    return at;
}
