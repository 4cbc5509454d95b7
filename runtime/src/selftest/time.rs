//! Times each launch.

use precast_core::{Batch, KeyVariant};
use precast_fatbins::Bundle;

use super::prepare::{Prepared, prepare, send};
use crate::driver::Driver;
use crate::loading::LoadError;

/// Timings of a launch, and launches per timing.
const TIMINGS: u32 = 5;
const REPEATS: u32 = 20;

/// Time of a launch, independent of any plan.
#[derive(Debug)]
pub struct Timed {
    /// Kernel that was launched.
    pub pair: KeyVariant,
    /// Bytes that it must move.
    pub bytes: u64,
    /// Floating-point operations, if they bound its time.
    pub flops: u64,
    /// Fastest of several consecutive launches.
    pub seconds: f64,
}

/// Times every kernel of a bundle that runs on the driver's device and whose key starts with `prefix`, at its launch
/// typical of a batch; without one, or if a variant does not admit it, at the largest admitted sample.
///
/// # Errors
/// [`LoadError`] if the bundle has no code for the device, or a launch fails.
pub fn time(
    mut driver: Box<dyn Driver>,
    bundle: &Bundle<'_>,
    prefix: &str,
    batch: Option<Batch>,
    seed: u64,
    mut report: impl FnMut(Timed),
) -> Result<(), LoadError> {
    let one = |KeyVariant { key, variant }: &KeyVariant, samples: Vec<(usize, Vec<u8>)>| {
        let typical = batch.map(|batch| (0, key.kernel().typical(batch)));
        let typical = typical.filter(|(_, params)| key.kernel().admits(*variant, params));
        let largest = || samples.into_iter().max_by_key(|(_, params)| key.kernel().bytes(params));
        typical.or_else(largest).into_iter().collect()
    };
    let Prepared { base, ready, .. } = prepare(&mut *driver, bundle, prefix, REPEATS, one)?;
    for launch in ready {
        send(&mut *driver, base, &launch.layout.image(&launch.case(seed)))?;
        let mut seconds = f64::INFINITY;
        for _ in 0..TIMINGS {
            seconds = seconds.min(driver.time(launch.graph, 1)? / f64::from(REPEATS));
        }
        let kernel = launch.pair.key.kernel();
        let (bytes, flops) = (kernel.bytes(&launch.params), kernel.flops(&launch.params));
        report(Timed { pair: launch.pair, bytes, flops, seconds });
    }
    Ok(())
}
