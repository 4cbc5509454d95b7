/* Lists of tiles: ragged work in pieces of bounded length, made on the device. */
#ifndef PRECAST_TILES_H
#define PRECAST_TILES_H

/* Rows of an expert that a tile of a list has, at most. */
#define EXPERT_TILE 128

#endif
