//! A rank's share of a step: whole replicas of its micro-batches, and a part of the update.
//!
//! A *replica* is a run of micro-batches whose gradients are added in order, as on one GPU. Whole replicas are added by
//! a tree: neighbors in pairs, level by level; an odd last one moves up. A rank holds neighboring replicas, so the
//! levels that it adds alone are levels of the same tree, and the sum does not depend on the number of ranks.

use std::ops::Range;

use precast_kernels::grad_norm;

use crate::sections::Sections;

/// Elements per partial sum of the norm.
const GROUP: u64 = grad_norm::GROUP as u64;

/// A rank's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Replicas of a step, over all ranks.
    pub replicas: u32,
    pub ranks: u32,
    /// This rank, from 0.
    pub rank: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self::ALONE
    }
}

/// The replicas' tree cannot be divided among the ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{replicas} replicas cannot be divided among {ranks} GPUs: each GPU computes 1, 2, 4, 8 ... whole replicas. Use {}",
    ranks_for(*replicas)
)]
pub struct ShareError {
    pub replicas: u32,
    pub ranks: u32,
}

/// Lists the numbers of GPUs that divide the replicas: `1, 2 or 4 GPUs`.
fn ranks_for(replicas: u32) -> String {
    let divides = |ranks: &u32| Share { replicas, ranks: *ranks, rank: 0 }.check().is_ok();
    // No machine has more than a few thousand.
    let mut all: Vec<String> = (1..=replicas.min(1 << 12)).filter(divides).map(|ranks| ranks.to_string()).collect();
    let last = all.pop().unwrap_or_default();
    let all = if all.is_empty() { last } else { format!("{} or {last}", all.join(", ")) };
    if all == "1" { "1 GPU".to_owned() } else { format!("{all} GPUs") }
}

impl Share {
    /// One rank, one replica.
    pub const ALONE: Self = Self { replicas: 1, ranks: 1, rank: 0 };

    /// Checks that each rank gets whole subtrees of the replicas' tree.
    ///
    /// # Errors
    /// [`ShareError`] with the valid values.
    pub fn check(self) -> Result<(), ShareError> {
        let Self { replicas, ranks, .. } = self;
        let fits = replicas.is_multiple_of(ranks) && (ranks == 1 || (replicas / ranks).is_power_of_two());
        if fits { Ok(()) } else { Err(ShareError { replicas, ranks }) }
    }

    /// Returns the other ranks, in order.
    pub(crate) fn others(self) -> impl Iterator<Item = u32> {
        (0..self.ranks).filter(move |rank| *rank != self.rank)
    }

    /// Returns the number of replicas that this rank computes.
    pub fn local(self) -> u32 {
        self.replicas / self.ranks
    }

    /// Returns the range of a step's micro-batches that this rank computes, and the number per replica.
    pub fn micros(self, grad_accum: u64) -> (Range<u64>, u64) {
        let each = grad_accum / u64::from(self.replicas);
        let own = each * u64::from(self.local());
        let first = own * u64::from(self.rank);
        (first..first + own, each)
    }

    /// Returns the number of additional gradient buffers: sums of finished replicas that wait for their neighbors.
    pub fn waiting(self) -> u32 {
        self.local().ilog2()
    }

    /// Returns the fold of a replica's gradient, counted from 0 on this rank; none for a single replica.
    pub fn fold(self, replica: u32) -> Option<Fold> {
        let last = replica + 1 == self.local();
        let waiting = replica.count_ones();
        match (self.local(), last) {
            (1, _) => None,
            (_, true) => Some(Fold::Total { waiting }),
            (_, false) if replica.trailing_ones() == 0 => Some(Fold::Keep { waiting }),
            (_, false) => Some(Fold::Join { waiting, levels: replica.trailing_ones() }),
        }
    }

    /// Returns the parts of a rank's gradients in a step, in order; `micros` has the number of micro-batches of each of
    /// its replicas.
    pub fn parts(self, micros: &[usize]) -> impl Iterator<Item = GradientPart> {
        micros.iter().enumerate().flat_map(move |(replica, count)| {
            let ends = self.ranks > 1 && replica + 1 == self.local() as usize;
            let micro =
                move |number| GradientPart::Micro(Micro { replica, number, is_last: ends && number + 1 == *count });
            (0..*count).map(micro).chain(self.fold(replica as u32).filter(|_| !ends).map(GradientPart::Fold))
        })
    }

    /// Returns each fold with a phase of its own, once: with several ranks the last micro-batch contains that of the
    /// last replica.
    pub fn folds(self) -> Vec<Fold> {
        let replicas = if self.ranks == 1 { self.local() } else { self.local() - 1 };
        let mut folds: Vec<Fold> = (0..replicas).filter_map(|replica| self.fold(replica)).collect();
        folds.sort_unstable();
        folds.dedup();
        folds
    }
}

/// A part of a rank's gradients in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GradientPart {
    Micro(Micro),
    /// A replica's gradient is complete.
    Fold(Fold),
}

/// A micro-batch of a rank's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Micro {
    /// Replica, from 0 on the rank.
    pub replica: usize,
    /// Number in the replica: 0 overwrites gradients, others add.
    pub number: usize,
    /// It is the rank's last one, and there are several ranks: behind it gradients and losses are those of all.
    pub is_last: bool,
}

/// Treatment of a replica's gradient while sums of earlier ones wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fold {
    /// It waits for its neighbor.
    Keep { waiting: u32 },
    /// It is added to its neighbor, and the sum to the next one, over `levels` levels.
    Join { waiting: u32, levels: u32 },
    /// The last replica: the total replaces it.
    Total { waiting: u32 },
}

impl Fold {
    /// Returns the name of its phase.
    pub fn phase(self) -> String {
        match self {
            Fold::Keep { waiting } => format!("keep.{waiting}"),
            Fold::Join { waiting, levels } => format!("join.{waiting}.{levels}"),
            Fold::Total { waiting } => format!("total.{waiting}"),
        }
    }
}

/// Returns the additions of a tree over `count` places, in order: (from, to). `own` stays in place, and receives the
/// total.
pub(crate) fn tree(count: u32, own: u32) -> Vec<(u32, u32)> {
    let mut additions = Vec::new();
    let mut level: Vec<u32> = (0..count).collect();
    while level.len() > 1 {
        let pair = |pair: &[u32]| match *pair {
            // Addition of two numbers is commutative.
            [left, right] if right == own => (right, Some((left, right))),
            [left, right] => (left, Some((right, left))),
            [odd, ..] => (odd, None),
            [] => unreachable!("chunks are not empty"),
        };
        let pairs: Vec<_> = level.chunks(2).map(pair).collect();
        additions.extend(pairs.iter().filter_map(|(_, addition)| *addition));
        level = pairs.into_iter().map(|(place, _)| place).collect();
    }
    additions
}

/// Division of a flat range's update over ranks, in whole groups of the norm's partial sums, so that the elements of a
/// partial sum do not depend on the ranks. The range is divided bucket by bucket: a bucket's sum can begin once its
/// gradients are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    share: Share,
    elems: u64,
    /// Groups of each bucket.
    buckets: Vec<Range<u64>>,
}

/// A range that one rank updates, and its place in that rank's own buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First element in the range.
    pub start: u64,
    pub elems: u64,
    /// First element in a buffer of the rank's adjacent pieces.
    pub local: u64,
}

/// Size limit of a bucket, elements: 128 MiB of gradients.
const BUCKET_ELEMS: u64 = 1 << 25;
/// Approximate number of buckets of a small range.
const BUCKETS: u64 = 8;

impl Shards {
    pub fn new(share: Share, sections: &Sections) -> Self {
        let elems = sections.elems();
        let groups = elems.div_ceil(GROUP);
        // A small range is divided like a large one.
        let most = if share.ranks == 1 { groups } else { (groups / BUCKETS).clamp(1, BUCKET_ELEMS / GROUP) };
        let buckets = if share.ranks == 1 { vec![vec![groups]] } else { sections.groups(GROUP) };
        let mut start = 0;
        let buckets = buckets
            .into_iter()
            .flat_map(|ends| divide(std::mem::replace(&mut start, ends[ends.len() - 1]), &ends, most));
        Self { share, elems, buckets: buckets.collect() }
    }

    pub fn share(&self) -> Share {
        self.share
    }

    pub fn elems(&self) -> u64 {
        self.elems
    }

    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the elements of a bucket.
    pub fn whole(&self, bucket: usize) -> Range<u64> {
        let Range { start, end } = self.buckets[bucket].clone();
        let elements = |group: u64| (group * GROUP).min(self.elems);
        elements(start)..elements(end)
    }

    /// Returns the elements of a bucket that a rank updates.
    pub fn part(&self, bucket: usize, rank: u32) -> Range<u64> {
        let Range { start, end } = self.buckets[bucket].clone();
        let ranks = u64::from(self.share.ranks);
        let cut = |rank: u64| start + (end - start) * rank / ranks;
        let elements = |group: u64| (group * GROUP).min(self.elems);
        elements(cut(rank.into()))..elements(cut(u64::from(rank) + 1))
    }

    /// Returns the pieces that a rank updates, in order.
    pub fn pieces(&self, rank: u32) -> Vec<Piece> {
        let mut local = 0;
        let parts = (0..self.buckets()).map(|bucket| self.part(bucket, rank));
        let pieces = parts.filter(|part| !part.is_empty()).map(|Range { start, end }| {
            let piece = Piece { start, elems: end - start, local };
            local += piece.elems;
            piece
        });
        pieces.collect()
    }

    /// Returns the pieces that this rank updates.
    pub fn own(&self) -> Vec<Piece> {
        self.pieces(self.share.rank)
    }

    /// Returns the number of elements that this rank updates.
    pub fn own_elems(&self) -> u64 {
        self.own().iter().map(|piece| piece.elems).sum()
    }
}

/// Returns the buckets of a section that begins at `start` and whose layers end at `ends`: as many whole layers as fit,
/// or equal parts of a larger layer.
fn divide(start: u64, ends: &[u64], most: u64) -> Vec<Range<u64>> {
    let mut buckets = Vec::new();
    let (mut first, mut last) = (start, start);
    for end in ends {
        if end - first > most && last > first {
            buckets.push(first..last);
            first = last;
        }
        last = *end;
        if last - first > most {
            let parts = (last - first).div_ceil(most);
            let cut = |part: u64| first + (last - first) * part / parts;
            buckets.extend((0..parts).map(|part| cut(part)..cut(part + 1)));
            first = last;
        }
    }
    buckets.extend((last > first).then_some(first..last));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(replicas: u32, ranks: u32, rank: u32) -> Share {
        Share { replicas, ranks, rank }
    }

    /// The tree of the module's comment: neighbors in pairs, level by level, an odd last one moves up.
    fn text_of(mut level: Vec<String>) -> String {
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| if pair.len() == 2 { sum(&pair[0], &pair[1]) } else { pair[0].clone() })
                .collect();
        }
        level.remove(0)
    }

    /// Formats a sum independent of order.
    fn sum(a: &str, b: &str) -> String {
        if a < b { format!("({a}+{b})") } else { format!("({b}+{a})") }
    }

    /// Returns the result of a rank's folds over its replicas.
    fn folded(share: Share) -> String {
        let first = share.rank * share.local();
        let (mut grad, mut kept) = (String::new(), vec![String::new(); share.waiting() as usize]);
        // The last micro-batch of several ranks folds its replica by itself.
        let last = share.fold(share.local() - 1).filter(|_| share.ranks > 1).map(GradientPart::Fold);
        for part in share.parts(&vec![1; share.local() as usize]).chain(last) {
            match part {
                GradientPart::Micro(Micro { replica, .. }) => grad = format!("{:02}", first + replica as u32),
                GradientPart::Fold(Fold::Keep { waiting }) => kept[waiting as usize] = grad.clone(),
                GradientPart::Fold(Fold::Join { waiting, levels }) => {
                    let top = waiting as usize - 1;
                    kept[top] = sum(&kept[top], &grad);
                    for below in (waiting - levels..waiting - 1).rev() {
                        kept[below as usize] = sum(&kept[below as usize], &kept[below as usize + 1]);
                    }
                }
                GradientPart::Fold(Fold::Total { waiting }) => {
                    grad = (0..waiting).rev().fold(grad, |grad, below| sum(&kept[below as usize], &grad));
                }
            }
        }
        grad
    }

    #[test]
    fn the_last_micro_batch_of_several_ranks_ends_their_share() {
        let micro = |replica, number, is_last| GradientPart::Micro(Micro { replica, number, is_last });
        let keep = GradientPart::Fold(Fold::Keep { waiting: 0 });
        let of = |ranks, micros: &[usize]| share(4, ranks, 0).parts(micros).collect::<Vec<_>>();
        let before = [micro(0, 0, false), micro(0, 1, false), keep, micro(1, 0, false)];
        assert_eq!(of(2, &[2, 2]), [&before[..], &[micro(1, 1, true)]].concat());
        assert_eq!(share(1, 1, 0).parts(&[2]).collect::<Vec<_>>(), before[..2]);
        assert_eq!(of(4, &[3])[2], micro(0, 2, true));
        let alone = of(1, &[2, 1, 1, 1]);
        assert_eq!((&alone[..4], alone.last()), (&before[..], Some(&GradientPart::Fold(Fold::Total { waiting: 2 }))));
    }

    #[test]
    fn the_sum_does_not_depend_on_the_number_of_ranks() {
        for replicas in 1..=24 {
            let whole = text_of((0..replicas).map(|replica| format!("{replica:02}")).collect());
            let mut checked = 0;
            for ranks in (1..=replicas).filter(|ranks| share(replicas, *ranks, 0).check().is_ok()) {
                let of_ranks: Vec<String> = (0..ranks).map(|rank| folded(share(replicas, ranks, rank))).collect();
                assert_eq!(text_of(of_ranks.clone()), whole, "{replicas} replicas on {ranks} ranks");
                for own in 0..ranks {
                    let mut places = of_ranks.clone();
                    for (from, to) in tree(ranks, own) {
                        places[to as usize] = sum(&places[from as usize], &places[to as usize]);
                    }
                    assert_eq!(places[own as usize], whole, "{replicas} replicas on {ranks} ranks, on rank {own}");
                }
                checked += 1;
            }
            assert!(checked >= if replicas == 1 { 1 } else { 2 });
        }
    }

    #[test]
    fn a_number_of_ranks_that_does_not_go_names_those_that_do() {
        assert!(share(4, 2, 0).check().is_ok() && share(3, 1, 0).check().is_ok() && share(12, 3, 0).check().is_ok());
        let message = |replicas, ranks| share(replicas, ranks, 0).check().unwrap_err().to_string();
        assert!(message(4, 3).contains("1, 2 or 4 GPUs"), "{}", message(4, 3));
        assert!(message(12, 2).contains("1, 3, 6 or 12 GPUs"), "{}", message(12, 2));
        assert!(message(1, 2).contains("Use 1 GPU"), "{}", message(1, 2));
    }

    #[test]
    fn micro_batches_of_a_step_go_to_neighboring_replicas() {
        assert_eq!(Share::ALONE.micros(4), (0..4, 4));
        assert_eq!(share(4, 2, 1).micros(8), (4..8, 2));
        assert_eq!(share(3, 3, 2).micros(3), (2..3, 1));
    }

    #[test]
    fn shards_are_whole_groups_and_cover_everything_once() {
        let group = GROUP;
        for (elems, ranks) in [(1, 2), (13 * group - 5, 4), (13 * group, 3), (5000 * group + 64, 8)] {
            let thirds = Sections::new(vec![vec![elems / 3], vec![elems / 2, elems.saturating_sub(3)], vec![elems]]);
            let shards = Shards::new(share(ranks, ranks, 0), &thirds);
            let mut pieces: Vec<Piece> = (0..ranks).flat_map(|rank| shards.pieces(rank)).collect();
            pieces.sort_by_key(|piece| piece.start);
            let mut end = 0;
            for piece in pieces {
                assert_eq!(piece.start, end);
                assert!(piece.start % group == 0 && piece.local % group == 0);
                end += piece.elems;
            }
            assert_eq!(end, elems);
        }
    }

    #[test]
    fn buckets_are_whole_layers_and_parts_of_what_is_larger() {
        assert_eq!(divide(0, &[10], 4), [0..3, 3..6, 6..10]);
        assert_eq!(divide(10, &[13, 16, 19, 20], 6), [10..16, 16..20]);
        assert_eq!(divide(20, &[22, 30, 31], 4), [20..22, 22..26, 26..30, 30..31]);
        assert_eq!(divide(31, &[31], 4), []);
    }
}
