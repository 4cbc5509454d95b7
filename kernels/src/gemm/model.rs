//! Rates of tiles by a card's own figures, where nothing was measured.
//!
//! A CTA's time at a step of the depth is that of its tensor cores and that of shared memory, one after the other: the
//! step's slices are written there once, and every warp reads the rows and columns of its part. A tile that has the
//! same sums from fewer bytes is faster, the more so the faster tensor cores are. Bytes from memory are the same for
//! all tiles.

use super::variants::{FewRows, Mma, Tiling};
use crate::card::Card;

/// Bytes that shared memory moves a clock: 32 banks of 4 (CUDA C++ Programming Guide, "Shared Memory").
const SHARED_BYTES_PER_CLOCK: u32 = 128;

/// Returns how fast a tile multiplies when every multiprocessor is full: percent of tensor cores that nothing waits
/// for. None for a tile that `mma.sync` does not multiply.
pub fn rate(tiling: Tiling, card: Card) -> Option<u32> {
    let (threads, warp) = match tiling {
        Tiling::Mma(Mma { threads, warp_n, .. }) => (threads, 64 + warp_n),
        Tiling::FewRows(FewRows { threads, warp_m, warp_n, .. }) => (threads, warp_m + warp_n),
        Tiling::Wgmma(_) | Tiling::CudaCores(_) => return None,
    };
    let (tile_m, tile_n) = tiling.tile();
    let bytes = 2 * (tile_m + tile_n + threads / 32 * warp);
    let flops = 2 * tile_m * tile_n;
    let [tensor, shared] = [flops * SHARED_BYTES_PER_CLOCK, bytes * card.flops_per_clock].map(u64::from);
    Some((100 * tensor / (tensor + shared)).try_into().expect("a percentage"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixed;

    #[test]
    fn tiles_gain_by_size_where_tensor_cores_are_fast() {
        let tile = |tile_m, tile_n, warp_n, threads| {
            Tiling::Mma(Mma { mma: Fixed, stages: 3, threads, tile_k: 32, tile_m, tile_n, warp_n })
        };
        let [tile_m, tile_n, tile_k] = [64; 3];
        let few_rows = FewRows { mma: Fixed, stages: 6, threads: 128, tile_k, tile_m, tile_n, warp_m: 32, warp_n: 32 };
        let tiles =
            [tile(256, 128, 64, 256), tile(128, 128, 64, 128), tile(128, 64, 32, 128), Tiling::FewRows(few_rows)];
        let rates = |flops_per_clock| tiles.map(|tile| rate(tile, Card { multiprocessors: 1, flops_per_clock }));
        assert_eq!((rates(4096), rates(512)), ([42, 40, 30, 25].map(Some), [85, 84, 78, 72].map(Some)));
    }
}
