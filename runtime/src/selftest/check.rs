//! The self-test as one call, for the tests of a program.

use precast_core::check::Distance;
use precast_fatbins::Bundle;

use super::launches::{SelftestOutcome, selftest};
use super::time::{Timed, time};
use crate::loading::{LoadError, Loading};

/// Seed of the random inputs.
const SEED: u64 = 1;

/// Launches that computed what their references do.
#[derive(Clone, Debug, PartialEq)]
pub struct SelftestSum {
    /// Number of launches: an admitted sample of a kernel each.
    pub launches: usize,
    /// Largest distance of an output from its reference.
    pub worst: Distance,
}

/// Kernels that do not compute their references, or could not be checked.
#[derive(thiserror::Error)]
pub enum SelftestError {
    /// The bundle cannot be used on the device.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The bundle has no kernel for the device: a check of nothing finds nothing.
    #[error("nothing is checked: the bundle has no kernel for {0}")]
    Nothing(String),
    /// Every faulty launch: key, variant, and distance or misplaced byte.
    #[error("{} of {launches} launches are not as their references:\n  {}", .faults.len(), .faults.join("\n  "))]
    Faults {
        /// Faults, in the order of launches.
        faults: Vec<String>,
        /// Number of launches.
        launches: usize,
    },
}

precast_core::debug_is_display!(SelftestError);

/// Compares every kernel of a bundle with its host reference on the device: each admitted sample with random inputs,
/// poisoned outputs and guarded operands. On the simulated GPU, which executes the references, this checks the samples
/// and the bundle alone.
///
/// # Errors
/// [`SelftestError`] with every fault.
pub fn check(loading: Loading, bundle: &Bundle<'_>) -> Result<SelftestSum, SelftestError> {
    let (mut faults, mut checked) = (Vec::new(), SelftestSum { launches: 0, worst: Distance::NONE });
    let device = loading.device().name.clone();
    selftest(loading.into_driver(), bundle, "", SEED, |SelftestOutcome { pair, sample, result, .. }| {
        checked.launches += 1;
        match result {
            Ok(distance) if distance.norm > checked.worst.norm => checked.worst = distance,
            Ok(_) => {}
            Err(fault) => faults.push(format!("{pair}, sample {sample}: {fault}")),
        }
    })?;
    match checked.launches {
        0 => Err(SelftestError::Nothing(device)),
        _ if faults.is_empty() => Ok(checked),
        launches => Err(SelftestError::Faults { faults, launches }),
    }
}

/// Times every kernel of a bundle on the device at its largest admitted sample: the fastest of several runs of
/// consecutive launches.
///
/// # Errors
/// [`LoadError`] if the bundle has no code for the device, or a launch fails.
pub fn measure(loading: Loading, bundle: &Bundle<'_>) -> Result<Vec<Timed>, LoadError> {
    let mut timed = Vec::new();
    time(loading.into_driver(), bundle, "", None, SEED, |launch| timed.push(launch))?;
    Ok(timed)
}
