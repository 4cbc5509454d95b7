//! A teacher that computes the rows of sequences, and the device that it does that on.

use precast_plan::{Plan, Resident, Tensor, TopTokens};
use precast_runtime::{Driver, DriverError, Placement};
use precast_system::terminal::tell;

use super::request::CacheRequest;
use super::sequences::Micro;
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

/// Takes the rows of the micro-batch that comes next, one a place that is taken.
pub type Emit<'e> = dyn FnMut(Vec<u8>) -> Result<(), Failure> + 'e;

/// A teacher that computes.
pub trait Engine {
    /// Micro-batches that are computed in a pass, at most.
    fn micros(&self) -> usize;

    /// Computes the rows of micro-batches, in their order.
    ///
    /// # Errors
    /// [`Failure`] of the device, of the teacher's files, and of `emit`.
    fn rows(&mut self, micros: &[Micro], emit: &mut Emit<'_>) -> Result<(), Failure>;
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
        let places = self.request.places().count() as u64;
        // Of each rank one is computed or received while others wait; one is written. Of a compact one parts and rows
        // are there.
        let batches = (WAITING as u64 + 1) * u64::from(self.ranks) + 1 + u64::from(self.made.compact.is_some());
        let kept = ("rows of the cache", batches * places * self.made.row_bytes() + spilled);
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
        let path = self.request.teacher();
        let (models, startup) = ([path.display().to_string()], &mut Startup::default());
        let kernels = &self.request.target.kernels;
        let sealed = seal(self.driver, fit, kernels, &models, (Placement::Arena, patience), startup)?;
        if self.request.heading {
            tell(sealed.heading().model("teacher", path, self.teacher, self.request.teacher_format));
        }
        Ok(sealed)
    }
}

/// Reads the rows of the first places of so many: what results have of a token side by side.
///
/// # Errors
/// [`DriverError`].
pub(super) fn read_rows(
    sealed: &mut SealedDevice,
    results: &[Tensor],
    (taken, places): (usize, usize),
    made: &Made,
) -> Result<Vec<u8>, DriverError> {
    let first = |tensor: &Tensor| tensor.slice(0, tensor.elems / places as u64 * taken as u64);
    if let [only] = results {
        return sealed.read(first(only));
    }
    let parts = results.iter().map(|tensor| sealed.read(first(tensor))).collect::<Result<Vec<Vec<u8>>, _>>()?;
    Ok(made.side_by_side(&parts))
}
