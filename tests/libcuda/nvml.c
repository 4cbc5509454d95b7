/* A libnvidia-ml.so.1 beside the stand-in for libcuda, whose GPUs it finds by their PCI addresses.
 *
 * What they do stands in the environment, a value for each GPU: PRECAST_FAKE_NVML_POWER=300500,312400 (mW), _CLOCK (MHz),
 * _TEMPERATURE, _BUSY (%), _THROTTLE (a mask) and _LINKS. What is not there is not supported.
 * PRECAST_FAKE_NVML_REFUSES=nvmlInit_v2 names a call that fails; with PRECAST_FAKE_NVML_BLOCKS=N readings of the power from the
 * N-th on, counted from 0, never end, as those of a GPU that hangs, and the file that PRECAST_FAKE_NVML_BLOCKED names is made. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, UNKNOWN = 999 };
enum { CLOCK_SM = 1, TEMPERATURE_GPU = 0 };

static int ready;

int nvmlInit_v2(void) {
    CALL(nvmlInit_v2, UNKNOWN);
    const char* refuses = getenv("PRECAST_FAKE_NVML_REFUSES");
    if (refuses && !strcmp(refuses, "nvmlInit_v2")) return DRIVER_NOT_LOADED;
    return ready++, SUCCESS;
}
int nvmlShutdown(void) { CALL(nvmlShutdown, UNKNOWN); return ready--, SUCCESS; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** gpu) {
    CALL(nvmlDeviceGetHandleByPciBusId_v2, UNKNOWN);
    unsigned bus;
    if (!ready || sscanf(address, "0000:%x:00.0", &bus) != 1 || bus < 16) return NOT_FOUND;
    return *gpu = (void*)(size_t)(bus - 15), SUCCESS;
}

/* A GPU's value in a variable. */
static int value(const char* variable, void* gpu, unsigned* found) {
    char name[64];
    const char* values;
    snprintf(name, sizeof name, "PRECAST_FAKE_NVML_%s", variable);
    values = getenv(name);
    for (size_t skipped = 1; values && skipped < (size_t)gpu; ++skipped) values = strchr(values, ',') ? strchr(values, ',') + 1 : NULL;
    if (!ready || !values) return NOT_SUPPORTED;
    return *found = (unsigned)strtoul(values, NULL, 0), SUCCESS;
}

int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) {
    CALL(nvmlDeviceGetPowerUsage, UNKNOWN);
    static int readings;
    const char *blocks = getenv("PRECAST_FAKE_NVML_BLOCKS"), *blocked = getenv("PRECAST_FAKE_NVML_BLOCKED");
    if (blocks && readings++ >= atoi(blocks)) {
        if (blocked) close(open(blocked, O_CREAT | O_WRONLY, 0600));
        for (;;) pause();
    }
    return value("POWER", gpu, milliwatts);
}
int nvmlDeviceGetClockInfo(void* gpu, int clock, unsigned* mhz) {
    CALL(nvmlDeviceGetClockInfo, UNKNOWN);
    return clock == CLOCK_SM ? value("CLOCK", gpu, mhz) : NOT_SUPPORTED;
}
int nvmlDeviceGetTemperature(void* gpu, int sensor, unsigned* degrees) {
    CALL(nvmlDeviceGetTemperature, UNKNOWN);
    return sensor == TEMPERATURE_GPU ? value("TEMPERATURE", gpu, degrees) : NOT_SUPPORTED;
}
int nvmlDeviceGetUtilizationRates(void* gpu, unsigned percent[2]) {
    CALL(nvmlDeviceGetUtilizationRates, UNKNOWN);
    percent[1] = 1;
    return value("BUSY", gpu, percent);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* reasons) {
    CALL(nvmlDeviceGetCurrentClocksThrottleReasons, UNKNOWN);
    unsigned mask = 0;
    int result = value("THROTTLE", gpu, &mask);
    return *reasons = mask, result;
}
int nvmlDeviceGetNvLinkState(void* gpu, unsigned link, int* state) {
    CALL(nvmlDeviceGetNvLinkState, UNKNOWN);
    unsigned links = 0;
    int result = value("LINKS", gpu, &links);
    return *state = link < links, result;
}
