/* The calls of a stand-in: each begins with CALL. PRECAST_FAKE_FAULT=cuMemAlloc_v2:3 makes the third call of a function
 * fail, once, before it does anything. At its end a process adds a line for each function to the file that
 * PRECAST_FAKE_CALLS names: how often it was called, and how often of these it failed so. */
#pragma once
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct called {
    const char* name;
    int calls, faults, is_registered;
    struct called* older;
} called;

static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static called* newest_call;

/* Whether this call is the one to fail. */
static int is_at_fault(called* one) {
    const char* fault = getenv("PRECAST_FAKE_FAULT");
    size_t length = strlen(one->name);
    int fails;
    pthread_mutex_lock(&calls_lock);
    if (!one->is_registered) one->is_registered = 1, one->older = newest_call, newest_call = one;
    one->calls++;
    fails = fault && !strncmp(fault, one->name, length) && fault[length] == ':' && atoi(fault + length + 1) == one->calls;
    one->faults += fails;
    pthread_mutex_unlock(&calls_lock);
    return fails;
}

__attribute__((destructor)) static void write_calls(void) {
    const char* path = getenv("PRECAST_FAKE_CALLS");
    FILE* file = path ? fopen(path, "a") : NULL;
    const called* one = newest_call;
    if (!file) return;
    for (; one; one = one->older) fprintf(file, "%s %d %d\n", one->name, one->calls, one->faults);
    fclose(file);
}

/* Any code that says nothing of the cause. */
#define CALL(function, error)                            \
    do {                                                 \
        static called one = {#function, 0, 0, 0, NULL};  \
        if (is_at_fault(&one)) return error;             \
    } while (0)
