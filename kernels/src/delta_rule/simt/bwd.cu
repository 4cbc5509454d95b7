// Gradients of queries, keys, values and gates of the gated delta rule in f32. A CTA owns a chunk of a key head, whose
// value heads it takes in order; a thread owns a column of queries and keys.
// Bound: latency of operands, which are read from memory wherever they are multiplied.
// Source: Yang et al., "Gated Delta Networks", 2024.
#include "delta_rule/gates_bwd.cuh"

struct Shared {
    float (*dq)[HEAD], (*dk)[HEAD]; // of normalized queries and keys
    float (*scores)[CHUNK], (*system)[CHUNK];
    float *decay, *beta, *query, *key; // of tokens; 0 behind the last
    float *dlog, *dbeta;
    float* scratch;
};

// Operands of a chunk and a value head, from its first token on.
struct Head {
    const float *queries, *keys, *values, *scores, *v_new, *d_o, *dvb, *state, *dstate;
    uint32_t stride, square_stride, row_stride;
};

__device__ __forceinline__ Head head_of(const delta_rule_bwd_params& p, Chunk chunk, uint32_t key_head, uint32_t head) {
    Head own;
    own.stride = (2 * p.key_heads + p.value_heads) * HEAD;
    own.square_stride = p.value_heads * CHUNK, own.row_stride = p.value_heads * HEAD;
    const uint64_t token = chunk.first, row = (token * p.value_heads + head) * HEAD;
    own.queries = (const float*)p.qkv + token * own.stride + key_head * HEAD;
    own.keys = own.queries + p.key_heads * HEAD;
    own.values = own.queries + (2 * p.key_heads - key_head + head) * HEAD;
    own.scores = (const float*)p.scores + row / HEAD * CHUNK;
    own.v_new = (const float*)p.v_new + row, own.d_o = (const float*)p.d_o + row, own.dvb = (const float*)p.dvb + row;
    const uint64_t before = chunk.has_before ? chunk.before() : 0, behind = chunk.has_behind ? chunk.behind() : 0;
    own.state = (const float*)p.states + (before * p.value_heads + head) * HEAD * HEAD;
    own.dstate = (const float*)p.dstates + (behind * p.value_heads + head) * HEAD * HEAD;
    return own;
}

__device__ __forceinline__ float dot(const float* a, const float* b) {
    float sum = 0.0f;
    for (uint32_t i = 0; i < HEAD; i++) sum = fmaf(a[i], b[i], sum);
    return sum;
}

// Gradients of an element of the scores and of the system, both before their decay.
struct Element {
    float dscore, dsystem;
};

__device__ __forceinline__ Element element_of(const Head& own, uint32_t i, uint32_t j) {
    const float* written = own.v_new + j * own.row_stride;
    return {dot(own.d_o + i * own.row_stride, written), j < i ? -dot(own.dvb + i * own.row_stride, written) : 0.0f};
}

// Sums what scores and system give to decays and step sizes, over rows and columns, and leaves their gradients.
__device__ __forceinline__ void triangles(const Shared& s, const Head& own, uint32_t rows) {
    for (uint32_t n = threadIdx.x; n < CHUNK * CHUNK; n += VARIANT_THREADS) {
        const uint32_t i = n / CHUNK, j = n % CHUNK;
        float share = 0.0f, term = 0.0f;
        if (j <= i && i < rows) {
            const Element own_of = element_of(own, i, j);
            const float keys = dot(own.keys + i * own.stride, own.keys + j * own.stride);
            share = own_of.dsystem * s.key[i] * s.key[j] * keys * expf(s.decay[i] - s.decay[j]);
            term = fmaf(own_of.dscore, own.scores[i * own.square_stride + j], s.beta[i] * share);
        }
        s.scores[i][j] = term, s.system[i][j] = share;
    }
    sync_block();
    if (threadIdx.x < CHUNK) {
        const uint32_t i = threadIdx.x;
        float dlog = 0.0f, dbeta = 0.0f;
        for (uint32_t j = 0; j < CHUNK; j++) dlog += s.scores[i][j], dbeta += s.system[i][j];
        for (uint32_t j = 0; j < CHUNK; j++) dlog -= s.scores[j][i];
        s.dlog[i] = dlog, s.dbeta[i] = dbeta;
    }
    sync_block();
    for (uint32_t n = threadIdx.x; n < CHUNK * CHUNK; n += VARIANT_THREADS) {
        const uint32_t i = n / CHUNK, j = n % CHUNK;
        const bool inside = j <= i && i < rows;
        const Element own_of = inside ? element_of(own, i, j) : Element{};
        const float between = inside ? expf(s.decay[i] - s.decay[j]) : 0.0f;
        s.scores[i][j] = own_of.dscore * between, s.system[i][j] = s.beta[i] * own_of.dsystem * between;
    }
    sync_block();
}

// Adds what the states before and behind the chunk give.
__device__ __forceinline__ void add_states(const Shared& s, const Head& own, Chunk chunk) {
    const uint32_t column = threadIdx.x;
    const float *state = own.state + column * HEAD, *dstate = own.dstate + column * HEAD;
    const float last = s.decay[chunk.rows - 1];
    float of_last = 0.0f; // what the whole chunk's decay gets
    if (chunk.has_before && chunk.has_behind)
        of_last = expf(last) * block_sum<VARIANT_THREADS>(dot(state, dstate), s.scratch);
    for (uint32_t i = 0; i < chunk.rows; i++) {
        const float grown = expf(s.decay[i]), behind = expf(last - s.decay[i]) * s.key[i];
        const float query = own.queries[i * own.stride + column], key = own.keys[i * own.stride + column];
        const float* dvb = own.dvb + i * own.row_stride;
        const float read = chunk.has_before ? grown * dot(own.d_o + i * own.row_stride, state) : 0.0f;
        const float taken = chunk.has_before ? -grown * dot(dvb, state) : 0.0f;
        const float written = chunk.has_behind ? dot(own.v_new + i * own.row_stride, dstate) : 0.0f;
        s.dq[i][column] += read;
        s.dk[i][column] += s.beta[i] * taken + expf(last - s.decay[i]) * written;
        const float of_key = s.key[i] * taken * key, moved = behind * written * key;
        sync_block(); // sums have been read
        const float dlog =
            block_sum<VARIANT_THREADS>(s.query[i] * read * query + s.beta[i] * of_key - moved, s.scratch);
        sync_block();
        const float dbeta =
            block_sum<VARIANT_THREADS>(fmaf(dvb[column], own.values[i * own.stride + column], of_key), s.scratch);
        sync_block();
        of_last += block_sum<VARIANT_THREADS>(moved, s.scratch);
        if (column == 0) s.dlog[i] += dlog, s.dbeta[i] += dbeta;
    }
    if (column == 0) s.dlog[chunk.rows - 1] += of_last;
}

// Adds what queries and keys of the chunk give each other.
__device__ __forceinline__ void add_gradients(const Shared& s, const Head& own, uint32_t rows) {
    const uint32_t column = threadIdx.x;
    for (uint32_t i = 0; i < rows; i++) {
        float dq = 0.0f, dk = 0.0f, of_system = 0.0f;
        for (uint32_t j = 0; j < rows; j++) {
            const float query = own.queries[j * own.stride + column], key = own.keys[j * own.stride + column];
            dq = fmaf(s.scores[i][j] * s.key[j], key, dq);
            dk = fmaf(s.scores[j][i] * s.query[j], query, dk);
            of_system = fmaf((s.system[i][j] + s.system[j][i]) * s.key[j], key, of_system);
        }
        s.dq[i][column] += dq;
        s.dk[i][column] += dk + of_system;
    }
}

// Writes the gradient of a row, of that of the row when normalized: `along` is 128 or 1, as the norm is divided by.
__device__ __forceinline__ void store_unnormalized(const Shared& s, float* out, const float* row, float gradient,
                                                   float factor, float along) {
    const float value = row[threadIdx.x];
    sync_block(); // sums have been read
    along *= factor * factor * block_sum<VARIANT_THREADS>(value * gradient, s.scratch);
    out[threadIdx.x] = factor * fmaf(-value, along, gradient);
}

KERNEL(delta_rule_bwd_params) {
    DYNAMIC_SHARED(float, shared);
    float* values = shared + 2 * CHUNK * HEAD + 2 * CHUNK * CHUNK;
    const Shared s = {(float(*)[HEAD])shared, (float(*)[HEAD])(shared + CHUNK * HEAD),
                      (float(*)[CHUNK])(shared + 2 * CHUNK * HEAD), (float(*)[CHUNK])(values - CHUNK * CHUNK),
                      values, values + CHUNK, values + 2 * CHUNK, values + 3 * CHUNK, values + 4 * CHUNK,
                      values + 5 * CHUNK, values + 6 * CHUNK};
    const uint32_t index = blockIdx.x / p.key_heads, key_head = blockIdx.x % p.key_heads;
    const uint32_t group = p.value_heads / p.key_heads, first_head = key_head * group, column = threadIdx.x;
    const Chunk chunk = chunk_of(p.sequences, p.count, index);
    if (chunk.rows == 0) return store_no_gates(p, index, first_head, group);

    for (uint32_t i = 0; i < CHUNK; i++) s.dq[i][column] = 0.0f, s.dk[i][column] = 0.0f;
    for (uint32_t head = first_head; head < first_head + group; head++) {
        const Head own = head_of(p, chunk, key_head, head);
        if (column < CHUNK) {
            const bool inside = column < chunk.rows;
            const uint64_t token = chunk.first + (inside ? column : 0), gate = token * p.value_heads + head;
            const float* scale = (const float*)p.scale + token * 2 * p.key_heads + key_head;
            s.decay[column] = inside ? ((const float*)p.decay)[gate] : 0.0f;
            s.beta[column] = inside ? ((const float*)p.beta)[gate] : 0.0f;
            s.query[column] = inside ? scale[0] : 0.0f;
            s.key[column] = inside ? scale[p.key_heads] : 0.0f;
        }
        sync_block();
        triangles(s, own, chunk.rows);
        add_states(s, own, chunk);
        add_gradients(s, own, chunk.rows);
        float* dv = (float*)p.dqkv + (own.values - (const float*)p.qkv) + column;
        for (uint32_t i = 0; i < chunk.rows; i++) dv[i * own.stride] = s.beta[i] * own.dvb[i * own.row_stride + column];
        sync_block();
        if (column < WARP) store_gates(p, chunk, index, head, s.dlog, s.dbeta);
        sync_block();
    }

    const Head own = head_of(p, chunk, key_head, first_head);
    float* dqueries = (float*)p.dqkv + (own.queries - (const float*)p.qkv);
    for (uint32_t i = 0; i < chunk.rows; i++) {
        const uint32_t row = i * own.stride, keys = row + p.key_heads * HEAD;
        store_unnormalized(s, dqueries + row, own.queries + row, s.dq[i][column], s.query[i], HEAD);
        store_unnormalized(s, dqueries + keys, own.queries + keys, s.dk[i][column], s.key[i], 1.0f);
    }
}
