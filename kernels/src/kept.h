#ifndef PRECAST_KEPT_H
#define PRECAST_KEPT_H

/* Tokens of a row whose probabilities are kept, at most. */
#define MOST_KEPT 1024

#endif
