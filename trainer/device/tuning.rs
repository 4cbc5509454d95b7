//! Selection of variants by times measured on the device at hand. Bits of results are those of the row's own selection.

use std::path::{Path, PathBuf};

use itertools::Itertools;
use precast_fatbins::Digest;
use precast_kernels::{KERNELS, tuned::Table};
use precast_plan::Plan;
use precast_runtime::Device;
use precast_system::input;

use crate::base::io::IoError;
use crate::device::DeviceError;
use crate::options::{TuningOptions, UsageError};

/// The table of a run: its file, and the digest of it.
pub struct Tuning {
    path: PathBuf,
    table: Table,
    pub digest: Digest,
}

impl Tuning {
    /// Reads the table that options name; none if they name none.
    ///
    /// # Errors
    /// [`DeviceError::Io`], or [`DeviceError::Usage`] with the line that names what this program does not have.
    pub fn read(options: &TuningOptions) -> Result<Option<Self>, DeviceError> {
        options.tuned.as_deref().map(Self::of_file).transpose()
    }

    fn of_file(path: &Path) -> Result<Self, DeviceError> {
        let text = input::read_text(path, input::SETTINGS_BYTES).map_err(IoError::of("read", path))?;
        let refused = |error| UsageError(format!("--tuned {}: {error}", path.display()));
        let (path, digest) = (path.to_owned(), Digest::of(text.as_bytes()));
        Ok(Self { table: KERNELS.table(&text).map_err(refused)?, path, digest })
    }

    /// Selects by it on a chip.
    fn select(&self, plan: &mut Plan, chip: &str) -> Result<(), UsageError> {
        if !self.table.covers(chip, plan.arch) {
            let covered = self.table.covered();
            let covered = covered.iter().map(|[chip, arch]| format!("{arch} on {chip}")).join(", ");
            return Err(UsageError(format!(
                "--tuned {}: it has times of {}, and none of {} on {chip}. Measure them there: precast bench tune FILE",
                self.path.display(),
                if covered.is_empty() { "nothing" } else { &covered },
                plan.arch
            )));
        }
        plan.select_by(&self.table, chip);
        Ok(())
    }
}

/// Selects the variants of a plan for the device at hand: by the run's own table, else by times of its chip in the
/// committed one, else by the card's own figures. A stand-in keeps what is selected for the GPU of its row.
///
/// # Errors
/// [`UsageError`] for a table without times of the chip.
pub fn select(plan: &mut Plan, device: &Device, tuning: Option<&Tuning>) -> Result<(), UsageError> {
    let own = device.rows.is_some_and(|rows| rows.launches == rows.code);
    match (tuning, device.card()) {
        (Some(tuning), _) => return tuning.select(plan, &device.name),
        (None, _) if own && device.is_measured(plan.arch, KERNELS.tuned()) => {
            plan.select_by(KERNELS.tuned(), &device.name);
        }
        (None, Some(card)) if own => plan.select_for(card),
        (None, _) => {}
    }
    Ok(())
}

/// Selects the variants of a plan for the GPU that an architecture's launches are sized for.
///
/// # Errors
/// [`UsageError`] for a table without times of it.
pub fn select_for_row(plan: &mut Plan, tuning: Option<&Tuning>) -> Result<(), UsageError> {
    let chip = plan.arch.chip().unwrap_or("simulated GPU");
    tuning.map_or(Ok(()), |tuning| tuning.select(plan, chip))
}
