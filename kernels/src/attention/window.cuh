// The edges of what queries see of their sequence: keys up to their own position, and of these the last KEY_WINDOW if
// the key has a window.
#pragma once
#include "types.h"

#ifdef KEY_WINDOW
static_assert(KEY_WINDOW > 0 && KEY_WINDOW < 1u << 31, "a window sees its own key, and places have 31 bits");
#endif

// The first key that a query sees.
__device__ __forceinline__ uint32_t first_key(uint32_t query) {
#ifdef KEY_WINDOW
    constexpr uint32_t window = KEY_WINDOW;
    return query < window ? 0 : query - (window - 1);
#else
    return 0;
#endif
}
// The last query that sees a key, in the sequence or behind it.
__device__ __forceinline__ uint32_t last_query(uint32_t key) {
#ifdef KEY_WINDOW
    constexpr uint32_t window = KEY_WINDOW;
    return key + (window - 1);
#else
    return 0xffffffffu;
#endif
}
