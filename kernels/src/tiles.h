/* Lists of tiles: ragged work in pieces of bounded length, made on the device. A list is rows of 4 u32: the number of
   tiles and zeros; then for each tile its expert, counted from the first of the list, its first row, the row behind its
   last, and 0; then zeros. */
#ifndef PRECAST_TILES_H
#define PRECAST_TILES_H

/* Rows of an expert that a tile of a list has, at most. */
#define EXPERT_TILE 128

#endif
