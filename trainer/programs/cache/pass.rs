//! A pass of a sweep: how many sequences go through the layers at a time, and where their residual streams lie.

use precast_plan::{PlanError, SweepPlan, human_bytes};

/// Batches whose streams are on the device: each has launches of its own.
const MOST_BATCHES: u64 = 1024;

/// A plan, and how often its blocks are filled in a pass.
pub(super) struct Pass {
    pub plan: SweepPlan,
    /// Blocks of streams: one stays on the device, more are spilled to host memory.
    pub blocks: usize,
    /// True if all sequences are computed in one pass.
    pub is_whole: bool,
}

/// Memory that a pass may take.
pub(super) struct Room {
    /// Device memory.
    pub device: u64,
    /// Host memory for streams.
    pub spill: u64,
}

impl Pass {
    /// Lowers a pass of as many of `all` batches as there is room for, or in as few passes as that takes: all of about
    /// one length. There is room for `one`; `lower` returns the plan of blocks of so many batches in so many places.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn new(
        all: u64,
        room: &Room,
        one: &SweepPlan,
        lower: impl Fn(u64, usize) -> Result<SweepPlan, PlanError>,
    ) -> Result<Self, PlanError> {
        let (bytes, stream) = (one.plan.arena_bytes, lower(1, 2)?.plan.arena_bytes - one.plan.arena_bytes);
        let more = lower(2, 1)?.plan.arena_bytes - bytes;
        let most = (1 + (room.device - bytes) / more).min(all).min(MOST_BATCHES);
        let fits = |batches: u64| bytes + stream + (batches - 1) * (more + stream) <= room.device;
        let (batches, blocks) =
            spilled(all, most, room.spill / one.places[0].bytes(), fits).unwrap_or((even(all, most), 1));
        let places = if blocks > 1 { 2 } else { 1 };
        Ok(Self { plan: lower(batches, places)?, blocks: blocks as usize, is_whole: batches * blocks >= all })
    }

    /// Returns the bytes of host memory that streams are spilled to.
    pub fn spilled_bytes(&self) -> u64 {
        if self.blocks > 1 { self.plan.places[0].bytes() * self.blocks as u64 } else { 0 }
    }

    /// Describes it for people: `512 tokens at a time, all on the device`.
    pub fn described(&self) -> String {
        let tokens = self.plan.ids[0].elems * (self.plan.ids.len() * self.blocks) as u64;
        let place = match self.spilled_bytes() {
            0 => "all on the device".to_owned(),
            bytes => format!(
                "{} of them on the device and all in {} of host memory",
                2 * tokens / self.blocks as u64,
                human_bytes(bytes)
            ),
        };
        format!("{tokens} tokens at a time, {place}")
    }
}

/// Divides all batches into passes of at most so many, all of about one length.
fn even(all: u64, most: u64) -> u64 {
    all.div_ceil(all.div_ceil(most))
}

/// Returns the batches of a block and the blocks of a pass whose streams are spilled to host memory for `held` batches;
/// none where that makes no pass longer than the `most` that are on the device without.
fn spilled(all: u64, most: u64, held: u64, fits: impl Fn(u64) -> bool) -> Option<(u64, u64)> {
    // Two are on the device, and there are two at least.
    let batches =
        (1..=most.min(MOST_BATCHES / 2).min(all.div_ceil(2)).min(held / 2)).rev().find(|batches| fits(*batches))?;
    let blocks = (held / batches).min(all.div_ceil(batches));
    let pass = even(all, blocks * batches);
    let blocks = pass.div_ceil(batches).max(2);
    (most < all && blocks * batches > most).then_some((batches, blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_spilled_where_a_pass_is_longer_for_it() {
        let of = |all, most, held| spilled(all, most, held, |batches| batches <= most / 2);
        // All fit on the device, or host memory holds no more than it.
        assert_eq!(of(8, 8, 100), None);
        assert_eq!(of(100, 8, 8), None);
        assert_eq!(of(100, 8, 0), None);
        // Two places of four batches.
        assert_eq!(of(100, 8, 40), Some((4, 9)));
        assert_eq!(of(100, 8, 1000), Some((4, 25)));
        // Two passes of one length rather than one that is full and one that is not.
        assert_eq!(of(44, 8, 40), Some((4, 6)));
        assert_eq!(of(10, 8, 1000), Some((4, 3)));
        // No two places fit.
        assert_eq!(of(10, 1, 1000), None);
        for (all, most, held) in
            (1..40).flat_map(|all| (1..20).flat_map(move |most| (0..50).map(move |held| (all, most, held))))
        {
            if let Some((batches, blocks)) = of(all, most, held) {
                assert!(blocks >= 2 && 2 * batches <= most && blocks * batches <= held && blocks * batches > most);
            }
        }
    }
}
