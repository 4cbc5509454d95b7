/* A libnccl.so.2 over the stand-in for libcuda: streams move the bytes of ranks, by files beside this library that the communicator's
 * id names, one a message. It takes 16 MiB of the device's memory at its first exchange, when the real one connects.
 *
 * PRECAST_FAKE_NCCL_FLIPS=1 changes a bit of each message. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

enum { OK = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, BYTES = 1, MOST = 64 };

typedef struct {
    char text[128];
} id;

/* Messages of each pair of ranks are numbered by either end. */
typedef struct {
    id of;
    int rank;
    volatile int is_aborted;
    unsigned sent[MOST], received[MOST];
} communicator;

typedef struct {
    communicator* comm;
    char* at;
    size_t bytes;
    char path[512];
} message;

/* A send waits for nothing, and a stream is asked for it at once; for what a group receives behind all that it sends. */
static message* receives[MOST];
static int receive_count;
static void* received_on;

static void* driver(const char* name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }

/* A message has its name when it is whole. */
static void write_message(message* one) {
    char part[600];
    snprintf(part, sizeof part, "%s.part", one->path);
    FILE* file = fopen(part, "wb");
    if (!file || fwrite(one->at, 1, one->bytes, file) != one->bytes || fclose(file) || rename(part, one->path)) abort();
}

/* Another length than was sent is what the real one would hang of, or worse. */
static void read_message(message* one) {
    FILE* file;
    while (!(file = fopen(one->path, "rb"))) {
        if (one->comm->is_aborted) return;
        usleep(50);
    }
    if (fread(one->at, 1, one->bytes, file) != one->bytes || fgetc(file) != EOF) abort();
    if (one->bytes && getenv("PRECAST_FAKE_NCCL_FLIPS")) one->at[0] ^= 1;
    fclose(file);
    unlink(one->path);
}

static void run_send(void* data) { write_message(data), free(data); }
static void run_receive(void* data) { read_message(data), free(data); }

static int enqueue(void (*run)(void*), message* one, void* stream) {
    int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) = driver("cuLaunchKernel");
    return launch((void*)run, 1, 1, 1, 1, 1, 1, 0, stream, (void**)one, NULL) ? SYSTEM_ERROR : OK;
}
static message* message_of(communicator* comm, void* at, size_t bytes, int from, int to, unsigned number) {
    message* fresh = calloc(1, sizeof *fresh);
    fresh->comm = comm, fresh->at = at, fresh->bytes = bytes;
    snprintf(fresh->path, sizeof fresh->path, "%s-%d-%d-%u", comm->of.text, from, to, number);
    return fresh;
}

int ncclGetVersion(int* version) { CALL(ncclGetVersion, SYSTEM_ERROR); return *version = 22803, OK; }
int ncclGetUniqueId(id* made) {
    CALL(ncclGetUniqueId, SYSTEM_ERROR);
    static int ids;
    Dl_info own;
    memset(made, 0, sizeof *made);
    if (!dladdr((void*)ncclGetUniqueId, &own)) return SYSTEM_ERROR;
    return snprintf(made->text, sizeof made->text, "%s-%d-%d", own.dli_fname, getpid(), ids++) < (int)sizeof made->text ? OK : SYSTEM_ERROR;
}
int ncclCommInitRank(void** made, int ranks, id of, int rank) {
    CALL(ncclCommInitRank, SYSTEM_ERROR);
    communicator* fresh = calloc(1, sizeof *fresh);
    fresh->of = of, fresh->rank = rank;
    return *made = fresh, ranks <= MOST ? OK : SYSTEM_ERROR;
}
/* Streams may still come to what was asked of it. */
int ncclCommAbort(void* comm) { CALL(ncclCommAbort, SYSTEM_ERROR); return ((communicator*)comm)->is_aborted = 1, OK; }
const char* ncclGetErrorString(int error) { return error ? "error" : "no error"; }

int ncclGroupStart(void) { CALL(ncclGroupStart, SYSTEM_ERROR); return receive_count = 0, OK; }
int ncclSend(const void* from, size_t bytes, int type, int to, void* comm, void* stream) {
    CALL(ncclSend, SYSTEM_ERROR);
    communicator* own = comm;
    if (type != BYTES) return INVALID_ARGUMENT;
    return enqueue(run_send, message_of(own, (void*)from, bytes, own->rank, to, own->sent[to]++), stream);
}
int ncclRecv(void* to, size_t bytes, int type, int from, void* comm, void* stream) {
    CALL(ncclRecv, SYSTEM_ERROR);
    communicator* own = comm;
    if (type != BYTES || receive_count == MOST) return INVALID_ARGUMENT;
    receives[receive_count++] = message_of(own, to, bytes, from, own->rank, own->received[from]++);
    return received_on = stream, OK;
}
int ncclGroupEnd(void) {
    CALL(ncclGroupEnd, SYSTEM_ERROR);
    static unsigned long long memory;
    int (*take)(unsigned long long*, size_t) = driver("cuMemAlloc_v2");
    for (int i = 0; i < receive_count; i++)
        if (enqueue(run_receive, receives[i], received_on)) return SYSTEM_ERROR;
    return memory ? OK : take(&memory, 16 << 20);
}
