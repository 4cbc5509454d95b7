//! A teacher that computes the hidden states of sequences, and the device that it does that on.

use std::path::Path;
use std::sync::Arc;

use precast_plan::{Plan, Resident};
use precast_runtime::{Driver, Placement};
use precast_system::terminal::tell;

use super::request::CacheRequest;
use super::sequences::Sequence;
use crate::base::startup_times::Startup;
use crate::device::host_memory::{DeviceMemory, HostMemory};
use crate::device::seal::{SealedDevice, seal};
use crate::device::{DeviceError, one_memory, tuning};
use crate::inputs::checkpoint::Checkpoint;
use crate::options::Patience;
use crate::programs::failure::Failure;

/// Batches that are computed and wait for the disk.
pub(super) const WAITING: usize = 2;

/// Takes the number of sequences that come next, and their hidden states, a row a token.
pub type Emit<'e> = dyn FnMut(usize, Vec<u8>) -> Result<(), Failure> + 'e;

/// A teacher that computes.
pub trait Engine {
    /// Sequences that are computed together, at most.
    fn sequences(&self) -> usize;

    /// Computes the last hidden states of sequences, in their order.
    ///
    /// # Errors
    /// [`Failure`] of the device, of the teacher's files, and of `emit`.
    fn hidden(&mut self, sequences: &[Arc<Sequence>], emit: &mut Emit<'_>) -> Result<(), Failure>;
}

/// A device, and what is asked of it.
pub(super) struct Opening<'a> {
    pub driver: Box<dyn Driver>,
    pub request: &'a CacheRequest,
    pub teacher: &'a Checkpoint,
}

impl Opening<'_> {
    /// Estimates the host memory that a filling takes: hidden states of a batch that is read, of one that is written, and of those
    /// between.
    pub fn host(&self, plan: &Plan, model: &Resident) -> HostMemory {
        let width = u64::from(self.teacher.config().hidden) * self.request.precision.dtype().bytes();
        let (batch, seq_len) = self.request.batch();
        let batches = WAITING as u64 + 2;
        let kept = ("hidden states", batches * u64::from(batch * seq_len) * width);
        HostMemory::of_forward(plan, model, kept, &self.request.data, DeviceMemory::of(self.driver.device()))
    }

    /// Checks memory, loads kernels and seals. `patience` is that of who watches the device.
    pub fn seal(
        self,
        plan: &mut Plan,
        model: &Resident,
        patience: Option<Patience>,
    ) -> Result<SealedDevice, DeviceError> {
        let what = "the teacher does not fit: give --memory less than is free, use a smaller --batch-size, or end other programs";
        let host = self.host(plan, model);
        tuning::select(plan, self.driver.device(), None)?;
        one_memory::check(self.driver.device(), plan, &host).map_err(|error| error.unfit(what))?;
        let path: &Path = &self.request.teacher;
        let (models, startup) = ([path.display().to_string()], &mut Startup::default());
        let kernels = &self.request.target.kernels;
        let sealed = seal(self.driver, plan, kernels, &models, (Placement::Arena, patience), startup);
        let sealed = sealed.map_err(|error| error.unfit(what))?;
        if self.request.heading {
            tell(sealed.heading().model("teacher", path, self.teacher, self.request.teacher_format));
        }
        Ok(sealed)
    }
}
