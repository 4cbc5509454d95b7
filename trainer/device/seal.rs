//! From a plan to what can launch it: memory checked, kernels verified and loaded, sealed.

use std::ops::{Deref, DerefMut};

use precast_fatbins::Digest;
use precast_plan::{Plan, Sequences, Tensor, evaluation};
use precast_runtime::{CublasUse, Driver, DriverError, Loading, Placement, Sealed};

use crate::base::notes::note;
use crate::base::startup_times::Startup;
use crate::device::fit::Fit;
use crate::device::run_heading::Heading;
use crate::device::watch::Watch;
use crate::device::{self, DeviceError};
use crate::inputs::data::MicroBatch;
use crate::options::{Kernels, Patience};

/// A sealed device, who watches it, and what was loaded there.
pub struct SealedDevice {
    // Dropped first: what it waits for then is watched, too.
    sealed: Sealed,
    pub watch: Watch,
    /// Digest of the bundle whose kernels run.
    pub bundle: Digest,
    /// Device memory that disappeared while everything was loaded and taken.
    pub taken_bytes: u64,
}

impl SealedDevice {
    /// Returns what is printed first of what runs there.
    pub fn heading(&self) -> Heading {
        let gemms = self.cublas().map(|cublas| format!("cuBLASLt {}", cublas.version));
        let heading = Heading::new(self.device(), self.bundle, self.loaded().len());
        heading.with("GEMMs", gemms).with("ranks", self.ranks())
    }

    /// Has an evaluation, whose inputs these are, score token ids by the token after each.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn score(
        &mut self,
        [ids, targets]: [Tensor; 2],
        sequences: Sequences,
        batch: &MicroBatch,
    ) -> Result<(), DriverError> {
        self.sealed.write(ids, bytemuck::cast_slice(&batch.ids))?;
        self.sealed.write(targets, bytemuck::cast_slice(&batch.targets))?;
        self.sealed.write(sequences.all, bytemuck::cast_slice(&sequences.words(&batch.lengths)))?;
        self.sealed.run(evaluation::SCORE)
    }
}

impl Deref for SealedDevice {
    type Target = Sealed;

    fn deref(&self) -> &Self::Target {
        &self.sealed
    }
}

impl DerefMut for SealedDevice {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.sealed
    }
}

/// Checks memory, verifies and loads the bundle, seals.
pub(crate) fn seal<P: AsRef<Plan>>(
    driver: Box<dyn Driver>,
    fit: &Fit<P>,
    kernels: &Kernels,
    models: &[String],
    (placement, patience): (Placement, Option<Patience>),
    startup: &mut Startup,
) -> Result<SealedDevice, DeviceError> {
    driver.memory_note().iter().for_each(note);
    fit.check()?;
    let (device, plan) = (driver.device(), fit.plan.as_ref());
    let source = kernels.find(device::rows(device)?.code, plan)?;
    source.note().into_iter().for_each(note);
    let bundle = source.open()?;
    let free_before = driver.free_bytes()?;
    let mut loading = Loading::new(driver);
    loading.load(&bundle, plan).map_err(|error| source.not_loaded(error, models))?;
    startup.end("verify and load");
    let sealed = loading.seal(plan, placement)?;
    let taken_bytes = free_before.saturating_sub(sealed.free_bytes()?);
    let planned = plan.device_bytes() - plan.arena_bytes;
    if let Some(CublasUse { taken_bytes: by_cublas, .. }) =
        sealed.cublas().filter(|cublas| cublas.taken_bytes > planned)
    {
        note(format_args!(
            "cuBLASLt has taken {by_cublas} bytes of device memory for itself, and {planned} were planned"
        ));
    }
    let watch = Watch::start(sealed.device(), sealed.activity(), patience)?;
    startup.end("seal");
    Ok(SealedDevice { sealed, watch, bundle: bundle.digest(), taken_bytes })
}
