//! Exchanges of ranks: gradients and losses to be added, and updates.

use std::ops::Range;

use precast_kernels::Dtype;

use super::postpone::{last_write, postpone};
use super::{Ops, Sums};
use crate::share::{Shards, Share, tree};
use crate::weights::Weights;
use precast_core::plan::{Exchange, Tensor};

/// Alignment of received elements: 16 bytes of f32.
const ALIGN: u64 = 4;

fn slice(of: Tensor, range: Range<u64>) -> Tensor {
    of.slice(range.start, range.end - range.start)
}

/// Values received from other ranks, to be added to this rank's.
struct Received {
    name: String,
    /// This rank's values.
    own: Tensor,
    rank: u32,
    /// Received values, a fixed stride per other rank.
    places: Tensor,
    stride: u64,
}

impl Received {
    /// Returns the tensor for another rank's values.
    fn place(&self, rank: u32) -> Tensor {
        let index = rank - u32::from(rank > self.rank);
        self.places.slice(u64::from(index) * self.stride, self.own.elems)
    }
}

impl Ops<'_> {
    /// Sums gradients of the ranks, each in the elements that it updates, and losses in all of them, by the tree. The
    /// current phase computes this rank's last micro-batch: a bucket is sent after the last node that writes to it, and
    /// summed when the next one has been sent, so that computation overlaps the transfer. From `embedding` on, the
    /// gradient that is complete last if it trains, all are sent before any is summed.
    pub fn sum_over_ranks(&mut self, sums: &Sums, shards: &Shards, embedding: Option<Tensor>) {
        let [grad, losses] = sums.own;
        let nodes = self.b.take();
        let nodes = embedding.into_iter().fold(nodes, |nodes, embedding| postpone(nodes, grad, embedding));
        let embedding_at = embedding.and_then(|embedding| last_write(&nodes, embedding)).unwrap_or(nodes.len());
        let losses_at = last_write(&nodes, losses).expect("a step has losses");
        let complete_at = |bucket| {
            let at = last_write(&nodes, slice(grad, shards.whole(bucket)));
            // The losses are sent with the first bucket.
            at.unwrap_or(losses_at).max(losses_at)
        };
        let mut order: Vec<(usize, usize)> =
            (0..shards.buckets()).map(|bucket| (complete_at(bucket), bucket)).collect();
        order.sort_unstable();
        let mut order = order.into_iter().peekable();
        let (mut left, mut arriving, mut is_behind) = (0, Vec::new(), false);
        for (index, node) in nodes.into_iter().enumerate() {
            self.b.put(node);
            while let Some((_, bucket)) = order.next_if(|(at, _)| *at == index) {
                let sent = self.leave(bucket, left == 0, sums, shards);
                if !is_behind {
                    self.add_received(&std::mem::take(&mut arriving), shards);
                }
                is_behind = index >= embedding_at;
                arriving.extend(sent);
                left += 1;
            }
        }
        self.add_received(&arriving, shards);
    }

    /// Sends each rank its part of a bucket, the sum of this rank's replicas, and with the first bucket the losses.
    fn leave(&mut self, bucket: usize, first: bool, sums: &Sums, shards: &Shards) -> Vec<Received> {
        let share = shards.share();
        let [grad, losses] = sums.own;
        let bucket_grad = slice(grad, shards.whole(bucket));
        for waiting in sums.waiting.iter().rev() {
            self.add(&format!("{bucket}.replicas"), slice(waiting[0], shards.whole(bucket)), bucket_grad);
            if first {
                self.add("losses.replicas", waiting[1], losses);
            }
        }
        let of_rank = |rank| slice(grad, shards.part(bucket, rank));
        let mut sent: Vec<(String, &dyn Fn(u32) -> Tensor)> = vec![(format!("{bucket}.grad"), &of_rank)];
        let losses_of = |_| losses;
        if first {
            sent.push(("losses".to_owned(), &losses_of));
        }
        let (mut exchange, mut received) = (Exchange::default(), Vec::new());
        for (name, of_rank) in sent {
            exchange
                .sends
                .extend(share.others().map(|rank| (rank, of_rank(rank))).filter(|(_, tensor)| tensor.elems > 0));
            let own = of_rank(share.rank);
            if own.elems > 0 {
                let stride = own.elems.next_multiple_of(ALIGN);
                let places = self.b.transient(self.name(&name), Dtype::F32, stride * u64::from(share.ranks - 1));
                let taken = Received { name, own, places, stride, rank: share.rank };
                exchange.receives.extend(share.others().map(|rank| (rank, taken.place(rank))));
                received.push(taken);
            }
        }
        self.b.exchange(self.name(&format!("{bucket}.exchange")), exchange);
        received
    }

    fn add_received(&mut self, received: &[Received], shards: &Shards) {
        for received in received {
            let at = |rank| if rank == received.rank { received.own } else { received.place(rank) };
            for (from, to) in tree(shards.share().ranks, received.rank) {
                self.add(&format!("{}.{from}", received.name), at(from), at(to));
            }
        }
    }

    /// Quantizes this rank's part of the layers from the full copy, sends it to all others, and receives theirs.
    pub fn quantize_part(&mut self, weights: &Weights, copy: Tensor, shards: &Shards) {
        let share = shards.share();
        let part = |rank: u32| {
            let cut = |rank: u32| weights.layers.len() * rank as usize / share.ranks as usize;
            cut(rank)..cut(rank + 1)
        };
        self.quantize_layers(weights, copy, part(share.rank));
        self.send_to_all("int8", share, |rank| weights.int8_layers(part(rank)));
    }

    /// Sends this rank's pieces of a flat range to all others, and receives theirs.
    pub fn gather(&mut self, name: &str, range: Tensor, shards: &Shards) {
        let slices = |rank| shards.pieces(rank).iter().map(|piece| range.slice(piece.start, piece.elems)).collect();
        self.send_to_all(name, shards.share(), slices);
    }

    /// Sends this rank's tensors to all others, and receives theirs.
    fn send_to_all(&mut self, name: &str, share: Share, of_rank: impl Fn(u32) -> Vec<Tensor>) {
        let own = of_rank(share.rank);
        let sends = share.others().flat_map(|rank| own.iter().map(move |tensor| (rank, *tensor))).collect();
        let receives =
            share.others().flat_map(|rank| of_rank(rank).into_iter().map(move |tensor| (rank, tensor))).collect();
        self.b.exchange(self.name(name), Exchange { sends, receives });
    }
}
