//! What ranks exchange: gradients and losses to be added, and what each has updated.

use precast_kernels::Dtype;

use super::{Ops, Sums};
use crate::buffer::Tensor;
use crate::node::Exchange;
use crate::share::{Shards, tree};

/// Elements that a place for received ones is a multiple of: 16 bytes of f32.
const ALIGN: u64 = 4;

impl Ops<'_> {
    /// Adds up the gradients of the ranks, each in the elements that it updates, and their losses in all of them, by the tree.
    /// On one rank there is nothing to add.
    pub fn sum_over_ranks(&mut self, sums: &Sums, shards: &Shards) {
        let share = shards.share();
        let others = || (0..share.ranks).filter(|rank| *rank != share.rank);
        if share.ranks == 1 {
            return;
        }
        self.scope("ranks");
        let [grad, losses] = sums.own;
        let part = |bucket, rank| shards.part(bucket, rank);
        let slice = |range: std::ops::Range<u64>| grad.slice(range.start, range.end - range.start);
        let lengths = (0..shards.buckets()).map(|bucket| slice(part(bucket, share.rank)).elems);
        let stride = lengths.max().unwrap_or(0).max(1).next_multiple_of(ALIGN);
        let received = self.b.transient("ranks.grad", Dtype::F32, stride * u64::from(share.ranks));
        let received_losses = self.b.transient("ranks.losses", Dtype::F32, ALIGN * u64::from(share.ranks));
        let place = |of: Tensor, stride: u64, rank: u32, elems| of.slice(u64::from(rank) * stride, elems);
        for bucket in 0..shards.buckets() {
            let own = slice(part(bucket, share.rank));
            let mut exchange = Exchange::default();
            for rank in others() {
                let theirs = slice(part(bucket, rank));
                exchange.sends.extend((theirs.elems > 0).then_some((rank, theirs)));
                exchange.receives.extend((own.elems > 0).then(|| (rank, place(received, stride, rank, own.elems))));
                if bucket == 0 {
                    exchange.sends.push((rank, losses));
                    exchange.receives.push((rank, place(received_losses, ALIGN, rank, losses.elems)));
                }
            }
            self.b.exchange(self.name(&format!("{bucket}.exchange")), exchange);
            let mut add_up = |name: &str, own: Tensor, of: Tensor, stride| {
                let at = |rank| if rank == share.rank { own } else { place(of, stride, rank, own.elems) };
                for (from, to) in tree(share.ranks, share.rank) {
                    self.add(&format!("{bucket}.{name}.{from}"), at(from), at(to));
                }
            };
            if own.elems > 0 {
                add_up("grad", own, received, stride);
            }
            if bucket == 0 {
                add_up("losses", losses, received_losses, ALIGN);
            }
        }
    }

    /// Sends what this rank has of a flat range to all others, and takes what they have.
    pub fn gather(&mut self, name: &str, range: Tensor, shards: &Shards) {
        let share = shards.share();
        let slices = |rank| shards.pieces(rank).into_iter().map(|piece| range.slice(piece.start, piece.elems));
        let others = || (0..share.ranks).filter(|rank| *rank != share.rank);
        let sends = others().flat_map(|rank| slices(share.rank).map(move |slice| (rank, slice))).collect();
        let receives = others().flat_map(|rank| slices(rank).map(move |slice| (rank, slice))).collect();
        self.b.exchange(self.name(name), Exchange { sends, receives });
    }
}
