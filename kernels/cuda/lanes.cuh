// Heads over neighboring lanes, a column of vectors each.
#pragma once

// Lanes that a head of so many columns takes: a power of two, up to a warp.
#define LANES_OF(columns)                                                            \
    ((columns) <= 1   ? 1                                                            \
     : (columns) <= 2 ? 2                                                            \
     : (columns) <= 4 ? 4                                                            \
     : (columns) <= 8 ? 8                                                            \
                      : ((columns) <= 16 ? 16 : 32))
