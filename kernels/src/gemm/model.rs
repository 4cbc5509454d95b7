//! Rates of tiles by a card's own figures, where nothing was measured.
//!
//! A CTA's time at a step of the depth is that of its tensor cores and that of shared memory, one after the other: the
//! step's slices are written there once, and every warp reads the rows and columns of its part. A tile that has the same
//! sums from fewer bytes is faster, the more so the faster tensor cores are. Bytes from memory are the same for all tiles.

use super::variants::Mma;
use crate::card::Card;

/// Bytes that shared memory moves a clock: 32 banks of 4 (CUDA C++ Programming Guide, "Shared Memory").
const SHARED_BYTES_PER_CLOCK: u32 = 128;

/// Returns how fast a tile multiplies when every multiprocessor is full: percent of tensor cores that nothing waits for.
pub fn rate(tile: Mma, card: Card) -> u32 {
    let bytes = 2 * (tile.tile_m + tile.tile_n + tile.threads / 32 * (64 + tile.warp_n));
    let flops = 2 * tile.tile_m * tile.tile_n;
    let [tensor, shared] = [flops * SHARED_BYTES_PER_CLOCK, bytes * card.flops_per_clock].map(u64::from);
    (100 * tensor / (tensor + shared)).try_into().expect("a percentage")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixed;

    #[test]
    fn tiles_gain_by_size_where_tensor_cores_are_fast() {
        let tile = |tile_m, tile_n, warp_n, threads| Mma {
            mma: Fixed,
            stages: 3,
            threads,
            tile_k: 32,
            tile_m,
            tile_n,
            warp_n,
        };
        let tiles = [tile(256, 128, 64, 256), tile(128, 128, 64, 128), tile(128, 64, 32, 128)];
        let rates = |flops_per_clock| tiles.map(|tile| rate(tile, Card { multiprocessors: 1, flops_per_clock }));
        assert_eq!((rates(4096), rates(512)), ([42, 40, 30], [85, 84, 78]));
    }
}
