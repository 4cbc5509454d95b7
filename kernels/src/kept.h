#ifndef PRECAST_KEPT_H
#define PRECAST_KEPT_H

/* Tokens of a row whose probabilities are kept, at most. */
#define MOST_KEPT 1024

/* No token: of none drawn, and of places behind the last that is kept. */
#define NO_TOKEN 0xFFFFFFFFu

#endif
