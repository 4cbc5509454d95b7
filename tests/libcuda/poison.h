/* How a GB10 context behaves, and a log of what was called: one line a load, a launch, a poisoning. LOG is the variable that
 * names the file. */
#include <stdio.h>
#include <stdlib.h>

enum { INVALID_SOURCE = 300, ILLEGAL_ADDRESS = 700 };

static volatile int launched, poisoned;

static void log_call(const char* what) {
    const char* path = getenv(LOG);
    FILE* file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", what);
        fclose(file);
    }
}

/* 0 where a module may be loaded, else the error. */
static int on_load(void) {
    if (poisoned) return ILLEGAL_ADDRESS;
    log_call("load");
    if (!launched) return 0;
    log_call("poison");
    poisoned = 1;
    return INVALID_SOURCE;
}

/* 0 where work may go on, else the error. */
static int on_work(void) { return poisoned ? ILLEGAL_ADDRESS : 0; }

/* What happened to a context ends with it. */
static int on_release(void) {
    launched = poisoned = 0;
    return 0;
}

static int on_launch(void) {
    if (poisoned) return ILLEGAL_ADDRESS;
    log_call("launch");
    launched = 1;
    return 0;
}
