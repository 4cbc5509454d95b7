//! A teacher that computes the rows of sequences, and the device that it does that on.

use std::path::Path;
use std::sync::Arc;

use precast_plan::{Plan, Resident, Tensor, TopTokens};
use precast_runtime::{Driver, DriverError, Placement};
use precast_system::terminal::tell;

use super::request::CacheRequest;
use super::sequences::Sequence;
use crate::base::startup_times::Startup;
use crate::device::fit::Fit;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::seal::{SealedDevice, seal};
use crate::device::{DeviceError, tuning};
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::teacher_cache::{Compact, Made};
use crate::options::Patience;
use crate::run::failure::Failure;

/// Batches that are computed and wait for the disk.
pub(super) const WAITING: usize = 2;

/// Takes the number of sequences that come next, and their rows, one a token.
pub type Emit<'e> = dyn FnMut(usize, Vec<u8>) -> Result<(), Failure> + 'e;

/// A teacher that computes.
pub trait Engine {
    /// Sequences that are computed together, at most.
    fn sequences(&self) -> usize;

    /// Computes the rows of sequences, in their order.
    ///
    /// # Errors
    /// [`Failure`] of the device, of the teacher's files, and of `emit`.
    fn rows(&mut self, sequences: &[Arc<Sequence>], emit: &mut Emit<'_>) -> Result<(), Failure>;
}

/// A device, and what is asked of it.
pub(super) struct Opening<'a> {
    pub driver: Box<dyn Driver>,
    pub request: &'a CacheRequest,
    pub teacher: &'a Checkpoint,
    /// Form of the rows.
    pub made: &'a Made,
    /// Ranks that divide the sequences.
    pub ranks: u32,
}

impl Opening<'_> {
    /// Returns the tokens that are kept of a position, where hidden states are not.
    pub fn top(&self) -> Option<TopTokens> {
        self.made.compact.map(Compact::top)
    }

    /// Estimates the host memory that a filling takes: rows of a batch that is read, of one that is written, and of
    /// those between, of each rank; and so many bytes of streams.
    pub fn host(&self, plan: &Plan, model: &Resident, spilled: u64, owner: DeviceMemory) -> HostMemory {
        let (batch, seq_len) = self.request.batch();
        // Of each rank one is computed or received while others wait; one is written. Of a compact one parts and rows
        // are there.
        let batches = (WAITING as u64 + 1) * u64::from(self.ranks) + 1 + u64::from(self.made.compact.is_some());
        let kept = ("rows of the cache", batches * u64::from(batch * seq_len) * self.made.row_bytes() + spilled);
        HostMemory::of_forward(plan, model, kept, &self.request.data, owner)
    }

    /// Checks memory, loads kernels and seals. `patience` is that of who watches the device, and `spilled` bytes are
    /// pinned.
    pub fn seal<P: AsRef<Plan> + AsMut<Plan>>(
        mut self,
        fit: &mut Fit<P>,
        (patience, spilled): (Option<Patience>, u64),
    ) -> Result<SealedDevice, DeviceError> {
        fit.change(|plan| tuning::select(plan.as_mut(), self.driver.device(), None))?;
        fit.check()?;
        if spilled > 0 {
            self.driver.pin(spilled)?;
        }
        let path: &Path = &self.request.teacher;
        let (models, startup) = ([path.display().to_string()], &mut Startup::default());
        let kernels = &self.request.target.kernels;
        let sealed = seal(self.driver, fit, kernels, &models, (Placement::Arena, patience), startup)?;
        if self.request.heading {
            tell(sealed.heading().model("teacher", path, self.teacher, self.request.teacher_format));
        }
        Ok(sealed)
    }
}

/// Reads the rows of the first sequences of a batch: what results have of a token side by side.
///
/// # Errors
/// [`DriverError`].
pub(super) fn read_rows(
    sealed: &mut SealedDevice,
    results: &[Tensor],
    (count, batch): (usize, usize),
    made: &Made,
) -> Result<Vec<u8>, DriverError> {
    let first = |tensor: &Tensor| tensor.slice(0, tensor.elems / batch as u64 * count as u64);
    if let [only] = results {
        return sealed.read(first(only));
    }
    let parts = results.iter().map(|tensor| sealed.read(first(tensor))).collect::<Result<Vec<Vec<u8>>, _>>()?;
    Ok(made.side_by_side(&parts))
}
