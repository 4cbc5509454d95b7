/* A libcublasLt.so.13 over the stand-in for libcuda: GEMMs are computed on the host, in the order of cublasLt.h's page, when
 * a kernel of the real one would run. Each kind of GEMM loads a module the first time, through cuGetProcAddress, as the real
 * one does, and takes 1 MiB of the device's memory for itself. What a caller must not leave to chance it refuses.
 *
 * PRECAST_FAKE_CUBLAS=120901 is the version that it says; under PRECAST_FAKE_CUBLAS_LATE it loads a module when a GEMM is run
 * from a graph. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, INTERNAL_ERROR = 14, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };
enum { POINTER_MODE = 2, TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BIAS_POINTER = 8 };
enum { MAX_WORKSPACE = 1, REDUCTION_MASK = 3, ALIGNMENT_A = 5, ALIGNMENT_D = 8 };
enum { REDUCTION_INPLACE = 1, REDUCTION_OUTPUT = 4 };
static const uint64_t ALGORITHM = 0x5ca1ab1e, WORKSPACE = 1 << 20;

typedef struct { int compute, scale, pointer_mode, transa, transb; uint32_t epilogue; uint64_t bias; } desc;
typedef struct { int type; uint64_t rows, columns; int64_t ld; } layout;
typedef struct { uint64_t workspace; uint32_t reductions, alignments[4]; } preference;
typedef struct { uint64_t data[8]; } algorithm;
typedef struct { algorithm algo; size_t workspace; int state; float waves; int reserved[4]; } found;

static void* driver(const char* name) {
    static int (*address_of)(const char*, void**, int, uint64_t, int*);
    void* function = NULL;
    if (!address_of) address_of = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
    if (address_of) address_of(name, &function, 13000, 0, NULL);
    return function;
}

static int load_module(void) {
    /* The head of an ELF file for machine 190. */
    static const unsigned char cubin[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 190};
    int (*load)(void**, const void*, void*, void**, unsigned, void*, void**, unsigned) = driver("cuLibraryLoadData");
    int (*take)(unsigned long long*, size_t) = driver("cuMemAlloc");
    unsigned long long memory;
    void* library;
    if (!load || !take || take(&memory, 1 << 20)) return NOT_INITIALIZED;
    return load(&library, cubin, NULL, NULL, 0, NULL, NULL, 0);
}

size_t cublasLtGetVersion(void) {
    const char* version = getenv("PRECAST_FAKE_CUBLAS");
    return version ? (size_t)atol(version) : 130002;
}
const char* cublasLtGetStatusName(int status) {
    return status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : status == INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_OTHER";
}
int cublasLtCreate(void** handle) { CALL(cublasLtCreate, INTERNAL_ERROR); return *handle = malloc(1), load_module() ? NOT_INITIALIZED : OK; }
int cublasLtDestroy(void* handle) { CALL(cublasLtDestroy, INTERNAL_ERROR); return free(handle), OK; }

int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
    CALL(cublasLtMatmulDescCreate, INTERNAL_ERROR);
    desc fresh = {compute, scale, 0, 0, 0, EPILOGUE_DEFAULT, 0};
    *made = memcpy(malloc(sizeof fresh), &fresh, sizeof fresh);
    return OK;
}
int cublasLtMatmulDescDestroy(void* made) { CALL(cublasLtMatmulDescDestroy, INTERNAL_ERROR); return free(made), OK; }
int cublasLtMatmulDescSetAttribute(void* made, int attribute, const void* value, size_t bytes) {
    CALL(cublasLtMatmulDescSetAttribute, INTERNAL_ERROR);
    desc* d = made;
    void* field = attribute == POINTER_MODE ? (void*)&d->pointer_mode : attribute == TRANSA ? (void*)&d->transa : attribute == TRANSB ? (void*)&d->transb : attribute == EPILOGUE ? (void*)&d->epilogue : attribute == BIAS_POINTER ? (void*)&d->bias : NULL;
    if (!field || bytes != (attribute == BIAS_POINTER ? 8 : 4)) return INVALID_VALUE;
    memcpy(field, value, bytes);
    return OK;
}
int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    CALL(cublasLtMatrixLayoutCreate, INTERNAL_ERROR);
    layout fresh = {type, rows, columns, ld};
    *made = memcpy(malloc(sizeof fresh), &fresh, sizeof fresh);
    return ld >= (int64_t)rows && (type == R_32F || type == R_16BF) ? OK : INVALID_VALUE;
}
int cublasLtMatrixLayoutDestroy(void* made) { CALL(cublasLtMatrixLayoutDestroy, INTERNAL_ERROR); return free(made), OK; }
int cublasLtMatmulPreferenceCreate(void** made) {
    CALL(cublasLtMatmulPreferenceCreate, INTERNAL_ERROR);
    preference fresh = {0, 7, {256, 256, 256, 256}};
    *made = memcpy(malloc(sizeof fresh), &fresh, sizeof fresh);
    return OK;
}
int cublasLtMatmulPreferenceDestroy(void* made) { CALL(cublasLtMatmulPreferenceDestroy, INTERNAL_ERROR); return free(made), OK; }
int cublasLtMatmulPreferenceSetAttribute(void* made, int attribute, const void* value, size_t bytes) {
    CALL(cublasLtMatmulPreferenceSetAttribute, INTERNAL_ERROR);
    preference* p = made;
    void* field = attribute == MAX_WORKSPACE ? (void*)&p->workspace : attribute == REDUCTION_MASK ? (void*)&p->reductions : attribute >= ALIGNMENT_A && attribute <= ALIGNMENT_D ? (void*)&p->alignments[attribute - ALIGNMENT_A] : NULL;
    if (!field || bytes != (attribute == MAX_WORKSPACE ? 8 : 4)) return INVALID_VALUE;
    memcpy(field, value, bytes);
    return OK;
}

/* Whether op(a) op(b) has the shape of d, in types that there are. */
static int fits(const desc* o, const layout* a, const layout* b, const layout* c, const layout* d) {
    uint64_t m = o->transa ? a->columns : a->rows, k = o->transa ? a->rows : a->columns;
    uint64_t n = o->transb ? b->rows : b->columns, depth = o->transb ? b->columns : b->rows;
    return o->compute == COMPUTE_32F && o->scale == R_32F && m == d->rows && n == d->columns && k == depth && a->type == b->type && c->type == d->type && c->rows == d->rows && c->columns == d->columns;
}

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* o, void* a, void* b, void* c, void* d, void* wanted, int asked, found* results, int* count) {
    CALL(cublasLtMatmulAlgoGetHeuristic, INTERNAL_ERROR);
    const preference* p = wanted;
    (void)handle;
    *count = 0;
    if (asked < 1 || !fits(o, a, b, c, d)) return INVALID_VALUE;
    /* The result must not depend on the order in which parts are added, and operands of a plan are aligned to 16 bytes. */
    if (p->reductions & (REDUCTION_INPLACE | REDUCTION_OUTPUT) || p->workspace < WORKSPACE) return NOT_SUPPORTED;
    for (int i = 0; i < 4; i++)
        if (p->alignments[i] != 16) return NOT_SUPPORTED;
    memset(results, 0, sizeof *results);
    results->algo.data[0] = ALGORITHM;
    results->workspace = WORKSPACE;
    *count = 1;
    return OK;
}

typedef struct {
    desc o;
    layout la, lb, lc, ld;
    const void *a, *b, *c, *alpha_on_device, *beta_on_device;
    void *d, *workspace;
    float alpha, beta;
    int in_graph;
} gemm;

static float get(const void* memory, const layout* l, uint64_t row, uint64_t column) {
    uint64_t at = column * (uint64_t)l->ld + row;
    uint32_t bits;
    float value;
    if (l->type == R_32F) return ((const float*)memory)[at];
    bits = (uint32_t)((const uint16_t*)memory)[at] << 16;
    return memcpy(&value, &bits, 4), value;
}

static void put(void* memory, const layout* l, uint64_t row, uint64_t column, float value) {
    uint64_t at = column * (uint64_t)l->ld + row;
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (l->type == R_32F) ((float*)memory)[at] = value;
    else ((uint16_t*)memory)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void run(void* data) {
    const gemm* p = data;
    float alpha = p->alpha_on_device ? *(const float*)p->alpha_on_device : p->alpha;
    float beta = p->beta_on_device ? *(const float*)p->beta_on_device : p->beta;
    uint64_t depth = p->o.transa ? p->la.rows : p->la.columns;
    layout bias = {p->ld.type, p->ld.rows, 1, (int64_t)p->ld.rows};
    if (getenv("PRECAST_FAKE_CUBLAS_LATE") && p->in_graph) load_module();
    memset(p->workspace, 0xff, WORKSPACE);
    for (uint64_t column = 0; column < p->ld.columns; column++)
        for (uint64_t row = 0; row < p->ld.rows; row++) {
            double sum = 0;
            for (uint64_t at = 0; at < depth; at++)
                sum += (double)(p->o.transa ? get(p->a, &p->la, at, row) : get(p->a, &p->la, row, at)) * (p->o.transb ? get(p->b, &p->lb, column, at) : get(p->b, &p->lb, at, column));
            sum *= alpha;
            if (p->o.epilogue == EPILOGUE_BIAS) sum += get((const void*)(size_t)p->o.bias, &bias, row, 0);
            if (beta != 0) sum += (double)beta * get(p->c, &p->lc, row, column);
            put(p->d, &p->ld, row, column, (float)sum);
        }
}

/* What was run before, by its types and its shape. */
static int is_new(const gemm* p) {
    static gemm* known;
    static size_t count;
    for (size_t i = 0; i < count; i++)
        if (known[i].o.transa == p->o.transa && known[i].o.transb == p->o.transb && known[i].o.epilogue == p->o.epilogue && !memcmp(&known[i].la, &p->la, sizeof p->la) && !memcmp(&known[i].ld, &p->ld, sizeof p->ld)) return 0;
    known = realloc(known, (count + 1) * sizeof *p);
    known[count++] = *p;
    return 1;
}

int cublasLtMatmul(void* handle, void* o, const void* alpha, const void* a, void* la, const void* b, void* lb, const void* beta, const void* c, void* lc, void* d, void* ld, const algorithm* algo, void* workspace, size_t bytes, void* stream) {
    CALL(cublasLtMatmul, INTERNAL_ERROR);
    int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) = driver("cuLaunchKernel");
    int (*capturing)(void*, int*) = driver("cuStreamIsCapturing");
    gemm p, *kept;
    memset(&p, 0, sizeof p);
    p.o = *(desc*)o, p.la = *(layout*)la, p.lb = *(layout*)lb, p.lc = *(layout*)lc, p.ld = *(layout*)ld;
    p.a = a, p.b = b, p.c = c, p.d = d, p.workspace = workspace;
    capturing(stream, &p.in_graph);
    if (p.o.pointer_mode) p.alpha_on_device = alpha, p.beta_on_device = beta;
    else p.alpha = *(const float*)alpha, p.beta = *(const float*)beta;
    if (!handle || !fits(o, la, lb, lc, ld) || algo->data[0] != ALGORITHM || bytes < WORKSPACE || !workspace) return INVALID_VALUE;
    if (((size_t)a | (size_t)b | (size_t)c | (size_t)d | (size_t)p.o.bias) % 16) return INVALID_VALUE;
    if (is_new(&p) && load_module()) return NOT_INITIALIZED;
    kept = memcpy(malloc(sizeof p), &p, sizeof p);
    return launch((void*)run, 1, 1, 1, 1, 1, 1, 0, stream, (void**)kept, NULL) ? INVALID_VALUE : OK;
}
