#ifndef PRECAST_INT8_TRAINING_H
#define PRECAST_INT8_TRAINING_H
#include "types.h"

/* What training in int8 needs besides `int8.h`. */

typedef struct int8_columns_params {
    address x;     /* [n, columns] */
    address q;     /* [columns, n] i8 */
    address scale; /* [columns] f32 */
    uint32_t columns;
    uint32_t reserved;
} int8_columns_params;

#endif
