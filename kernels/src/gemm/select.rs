//! Which tile a product is built with.

use crate::{Arch, Variant};

/// 256 threads in a 16 x 16 grid, each with `tile / 16` squared sums.
pub(super) const VARIANTS: &[Variant] =
    &[Variant(&[("threads", 256), ("tile", 64)]), Variant(&[("threads", 256), ("tile", 128)])];

/// Token counts that between them reach every variant a key can be launched with: a result grows with m,
/// and the choice below changes once as it does. The build enumerates a plan for each.
pub const TOKEN_BUCKETS: [u32; 2] = [1, 1 << 16];

/// The variant for a result of `rows` x `columns`: the large tile once there are 64 of it.
pub(super) fn select(rows: u32, columns: u32, _arch: Arch) -> Variant {
    let large = u64::from(rows / 128) * u64::from(columns / 128);
    if large >= 64 { VARIANTS[1] } else { VARIANTS[0] }
}
