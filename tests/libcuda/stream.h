/* Streams and events of the stand-in: a thread a stream, which does one after the other what the stream is asked for. Whoever
 * forgets to wait for it sees what a GPU would show him. PRECAST_FAKE_DELAY_US=200 lets each piece of work begin so much later at most, by a
 * number that looks random: streams, and processes, then come into other orders. PRECAST_FAKE_COPY_US=20000 lets each copy from memory to
 * memory of the device take so much longer. */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A function of the host, run when a GPU would do the same. */
typedef struct {
    void (*run)(void*);
    void* data;
} call;

typedef struct work {
    call what;
    struct work* next;
} work;

typedef struct stream {
    work *first, **last;
    int is_busy;
    struct stream* older;
} stream;

/* How often it was recorded, and which of these a stream has come to. */
typedef struct {
    uint64_t recorded, passed;
    double passed_ms;
} event;

/* Set by work that fails: nothing that comes after it is done, and whoever waits for that need not. */
static volatile int failed;
static void pass(void* data);
static void await(void* data);

/* Of all streams and events: what they do takes longer than waiting for it. */
static pthread_mutex_t streams = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static stream* newest;

static void* default_stream;
static int stream_create(void** made);
static void default_create(void) { stream_create(&default_stream); }

static void delay(unsigned* state) {
    const char* most_us = getenv("PRECAST_FAKE_DELAY_US");
    if (most_us) usleep((useconds_t)(rand_r(state) % (atoi(most_us) + 1)));
}

static void* serve(void* data) {
    stream* own = data;
    unsigned state = (unsigned)getpid() ^ (unsigned)(size_t)own;
    pthread_mutex_lock(&streams);
    for (;;) {
        work* next = own->first;
        if (!next) {
            pthread_cond_wait(&progress, &streams);
            continue;
        }
        own->first = next->next;
        if (!own->first) own->last = &own->first;
        own->is_busy = 1;
        pthread_mutex_unlock(&streams);
        delay(&state);
        if (!failed || next->what.run == pass || next->what.run == await) next->what.run(next->what.data);
        free(next);
        pthread_mutex_lock(&streams);
        own->is_busy = 0;
        pthread_cond_broadcast(&progress);
    }
    return NULL;
}

static int stream_create(void** made) {
    stream* fresh = calloc(1, sizeof *fresh);
    pthread_t thread;
    fresh->last = &fresh->first;
    *made = fresh;
    pthread_mutex_lock(&streams);
    fresh->older = newest, newest = fresh;
    pthread_mutex_unlock(&streams);
    return pthread_create(&thread, NULL, serve, fresh) || pthread_detach(thread);
}

/* A stream by its handle: the default one has none, and no other waits for it. */
static stream* stream_of(void* handle) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (handle) return handle;
    pthread_once(&once, default_create);
    return default_stream;
}

/* Asks a stream for something; what `data` is belongs to it. */
static void enqueue(void* to, void (*run)(void*), void* data) {
    stream* own = stream_of(to);
    work* fresh = calloc(1, sizeof *fresh);
    fresh->what.run = run, fresh->what.data = data;
    pthread_mutex_lock(&streams);
    *own->last = fresh;
    own->last = &fresh->next;
    pthread_cond_broadcast(&progress);
    pthread_mutex_unlock(&streams);
}

static void stream_wait(void* of) {
    stream* own = stream_of(of);
    pthread_mutex_lock(&streams);
    while (own->first || own->is_busy) pthread_cond_wait(&progress, &streams);
    pthread_mutex_unlock(&streams);
}

static void all_streams_wait(void) {
    pthread_mutex_lock(&streams);
    for (stream* each = newest; each; each = each->older)
        while (each->first || each->is_busy) pthread_cond_wait(&progress, &streams);
    pthread_mutex_unlock(&streams);
}

/* Waits until no stream has anything to do, as a driver does before it takes memory or graphs away; of one that waits for a rank that is
 * gone no longer than two seconds. */
static void settle(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    pthread_mutex_lock(&streams);
    for (stream* each = newest; each; each = each->older)
        while ((each->first || each->is_busy) && pthread_cond_timedwait(&progress, &streams, &until) == 0) {}
    pthread_mutex_unlock(&streams);
}

/* An event, and which of its records. */
typedef struct {
    event* of;
    uint64_t number;
} mark;

static void pass(void* data) {
    mark* reached = data;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&streams);
    reached->of->passed = reached->number;
    reached->of->passed_ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
    pthread_cond_broadcast(&progress);
    pthread_mutex_unlock(&streams);
    free(reached);
}

static void await(void* data) {
    mark* reached = data;
    pthread_mutex_lock(&streams);
    while (reached->of->passed < reached->number) pthread_cond_wait(&progress, &streams);
    pthread_mutex_unlock(&streams);
    free(reached);
}

/* The last record that was asked for, or the next one. */
static mark* mark_of(event* of, int next) {
    mark* fresh = malloc(sizeof *fresh);
    pthread_mutex_lock(&streams);
    fresh->of = of, fresh->number = of->recorded += next ? 1 : 0;
    pthread_mutex_unlock(&streams);
    return fresh;
}

static void event_record(event* of, void* on) { enqueue(on, pass, mark_of(of, 1)); }
static void stream_follow(void* follower, event* of) { enqueue(follower, await, mark_of(of, 0)); }
static void event_wait(event* of) { await(mark_of(of, 0)); }
static int event_has_passed(event* of) {
    int has;
    pthread_mutex_lock(&streams);
    has = of->passed >= of->recorded;
    pthread_mutex_unlock(&streams);
    return has;
}

typedef struct {
    void* to;
    const void* from;
    size_t bytes;
} copy;

static void run_copy(void* data) {
    copy* one = data;
    memcpy(one->to, one->from, one->bytes);
    free(one);
}
static void run_device_copy(void* data) {
    const char* slow_us = getenv("PRECAST_FAKE_COPY_US");
    if (slow_us) usleep((useconds_t)atoi(slow_us));
    run_copy(data);
}
static void stream_copy(void* on, void* to, const void* from, size_t bytes, void (*run)(void*)) {
    copy* fresh = malloc(sizeof *fresh);
    fresh->to = to, fresh->from = from, fresh->bytes = bytes;
    enqueue(on, run, fresh);
}

/* A copy of its own of what is on the host: whose memory is not pinned may take it back at once. */
static void run_owned_copy(void* data) {
    copy one = *(copy*)data;
    run_copy(data);
    free((void*)one.from);
}
static void stream_copy_now(void* on, void* to, const void* from, size_t bytes) {
    void* own = malloc(bytes);
    stream_copy(on, to, memcpy(own, from, bytes), bytes, run_owned_copy);
}

static void run_zeros(void* data) {
    copy* one = data;
    memset(one->to, 0, one->bytes);
    free(one);
}

/* A word that another process may write as well. */
typedef struct {
    uint32_t *at, value;
} word;

static void run_write(void* data) {
    word* one = data;
    __atomic_store_n(one->at, one->value, __ATOMIC_RELEASE);
    free(one);
}
/* By the sign of the difference, as CU_STREAM_WAIT_VALUE_GEQ is. */
static void run_wait(void* data) {
    word* one = data;
    while ((int32_t)(__atomic_load_n(one->at, __ATOMIC_ACQUIRE) - one->value) < 0) usleep(20);
    free(one);
}
static word* word_of(uint64_t at, uint32_t value) {
    word* fresh = malloc(sizeof *fresh);
    fresh->at = (uint32_t*)(size_t)at, fresh->value = value;
    return fresh;
}
