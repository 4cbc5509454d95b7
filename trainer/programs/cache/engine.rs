//! A teacher that computes the hidden states of sequences, and the device that it does that on.

use std::path::Path;
use std::sync::Arc;

use precast_plan::Plan;
use precast_runtime::{Driver, Placement};
use precast_system::terminal::tell;

use super::request::CacheRequest;
use super::sequences::Sequence;
use crate::base::startup_times::Startup;
use crate::device::host_memory::HostMemory;
use crate::device::seal::{SealedDevice, seal};
use crate::device::{DeviceError, one_memory, tuning};
use crate::inputs::checkpoint::Checkpoint;
use crate::programs::failure::Failure;

/// Takes the hidden states of the sequences that come next, a row a token: so many sequences, and their rows.
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
    /// Checks memory, loads kernels and seals.
    pub fn seal(self, plan: &mut impl AsMut<Plan>, host: HostMemory) -> Result<SealedDevice, DeviceError> {
        let plan = plan.as_mut();
        tuning::select(plan, self.driver.device(), None)?;
        one_memory::check(self.driver.device(), plan, &host)?;
        let path: &Path = &self.request.teacher;
        let (models, startup) = ([path.display().to_string()], &mut Startup::default());
        let kernels = &self.request.target.kernels;
        let sealed = seal(self.driver, plan, kernels, &models, (Placement::Arena, None), startup)?;
        if self.request.heading {
            tell(sealed.heading().model("teacher", path, self.teacher, self.request.teacher_format));
        }
        Ok(sealed)
    }
}
