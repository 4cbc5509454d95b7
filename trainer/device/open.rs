//! Opens the device of a command, of a run or of a rank.

use precast_kernels::{Arch, KERNELS};
use precast_plan::Gemm;
use precast_runtime::cublas::Cublas;
use precast_runtime::cuda::{self, Cuda};
use precast_runtime::sim::{Faults, Sim};
use precast_runtime::{Device, Driver, DriverError, Launcher, Launches, Rows};

use super::DeviceError;
use crate::base::notes::note;
use crate::options::{Advised, DeviceChoice, DeviceOptions, Kernels, RunConfig, UsageError};
use crate::ranks::{Place, Ranks};

/// Opens a device. `auto` is the first GPU. Without one it is the simulated GPU, and that is said, but only where
/// `kernels` hold no code for any GPU: whoever has such code wants it run.
///
/// # Errors
/// [`DeviceError::Unfit`], [`DeviceError::Usage`] if it cannot stand in for an architecture, or a [`DriverError`].
pub fn open(choice: DeviceChoice, kernels: &Kernels) -> Result<Box<dyn Driver>, DeviceError> {
    match choice {
        DeviceChoice::Sim => Ok(Box::new(Sim::new(Faults::default()))),
        DeviceChoice::Cuda(ordinal) => Ok(Box::new(open_cuda(ordinal, Launches::Own, kernels)?)),
        DeviceChoice::Portable(ordinal) => Ok(Box::new(open_cuda(ordinal, Launches::Portable, kernels)?)),
        DeviceChoice::As(arch, ordinal) => Ok(Box::new(stand_in(ordinal, arch, kernels)?)),
        DeviceChoice::Auto => match open_cuda(0, Launches::Own, kernels) {
            Err(found @ (DriverError::NoDriver | DriverError::NoGpu { .. })) => {
                simulate(&found, kernels, "the simulated GPU")?;
                open(DeviceChoice::Sim, kernels)
            }
            other => Ok(Box::new(other?)),
        },
    }
}

/// Opens a GPU for the rows that there is code for. A bundle that cannot be read is an error where kernels are loaded.
fn open_cuda(ordinal: u32, launches: Launches, kernels: &Kernels) -> Result<Cuda, DriverError> {
    Cuda::open(ordinal, launches, &kernels.archs().unwrap_or_default(), &KERNELS)
}

/// Opens a GPU that stands in for those of an architecture.
fn stand_in(ordinal: u32, arch: Arch, kernels: &Kernels) -> Result<Cuda, DeviceError> {
    let driver = open_cuda(ordinal, Launches::As(arch), kernels)?;
    stands_in(driver.device(), arch)?;
    Ok(driver)
}

/// Refuses a stand-in for an architecture whose instructions the device lacks.
fn stands_in(device: &Device, arch: Arch) -> Result<(), UsageError> {
    if !arch.is_exact() || arch.compute_capability() == device.compute_capability {
        return Ok(());
    }
    Err(UsageError(format!(
        "--device as:{0}: launches of {0} have instructions that {1} lacks. Name a row of portable kernels: {2}",
        arch.argument(),
        device.name,
        Arch::GPUS.into_iter().filter(|arch| !arch.is_exact()).map(Arch::argument).collect::<Vec<_>>().join(", ")
    )))
}

/// Says that a run is simulated because there is no GPU, unless there are kernels for one.
fn simulate(found: &DriverError, kernels: &Kernels, on: &str) -> Result<(), DeviceError> {
    let holds: Vec<String> = kernels.archs()?.iter().map(ToString::to_string).collect();
    let found = found.advised();
    if holds.is_empty() {
        note(format!("{found}. There are no kernels for a GPU either, so this runs on {on}"));
        return Ok(());
    }
    Err(DeviceError::Unfit(format!(
        "--device auto: {found}.\nThere are kernels for {} here, so auto does not fall back to the simulated GPU",
        holds.join(", ")
    )))
}

/// cuBLASLt, where a run has it compute products.
///
/// # Errors
/// [`DriverError::NoCublas`] on the simulated GPU, [`DeviceError::Cublas`] where there is none that can be used.
pub fn cublas(gemm: Gemm, choice: DeviceChoice) -> Result<Option<Cublas>, DeviceError> {
    match (gemm, choice) {
        (Gemm::Bundle, _) => Ok(None),
        (Gemm::Cublas, DeviceChoice::Sim) => Err(DriverError::NoCublas.into()),
        (Gemm::Cublas, _) => Ok(Some(Cublas::open()?)),
    }
}

/// Opens a device, and has cuBLASLt compute products there if it is given.
///
/// # Errors
/// As [`open`], and [`DriverError`] of the library.
pub fn open_with(target: &DeviceOptions, cublas: Option<Cublas>) -> Result<Box<dyn Driver>, DeviceError> {
    let mut driver = open(target.device, &target.kernels)?;
    cublas.map(|cublas| driver.set_cublas(cublas)).transpose()?;
    Ok(driver)
}

/// Opens the device of a configuration.
///
/// # Errors
/// As [`cublas`] and [`open_with`].
pub fn open_for(config: &RunConfig) -> Result<Box<dyn Driver>, DeviceError> {
    open_with(&config.target, cublas(config.arithmetic.gemm, config.target.device)?)
}

/// Opens the GPU of a rank's number on its host; where it sees one alone, that one. None where GPUs are simulated.
fn open_own_gpu(target: &DeviceOptions, place: &Place) -> Result<Option<Cuda>, DeviceError> {
    let count = match (target.device, cuda::count()) {
        (DeviceChoice::Sim, _) => return Ok(None),
        (DeviceChoice::Auto, Err(found @ (DriverError::NoDriver | DriverError::NoGpu { .. }))) => {
            simulate(&found, &target.kernels, "simulated GPUs")?;
            return Ok(None);
        }
        (_, count) => count?,
    };
    let ordinal = if count == 1 { 0 } else { place.local_rank };
    Ok(Some(match target.device {
        DeviceChoice::Portable(_) => open_cuda(ordinal, Launches::Portable, &target.kernels)?,
        DeviceChoice::As(arch, _) => stand_in(ordinal, arch, &target.kernels)?,
        DeviceChoice::Auto | DeviceChoice::Cuda(_) | DeviceChoice::Sim => {
            open_cuda(ordinal, Launches::Own, &target.kernels)?
        }
    }))
}

/// Opens the device of a rank that exchanges nothing with those of others.
///
/// # Errors
/// As [`open`].
pub fn open_own(target: &DeviceOptions, place: &Place) -> Result<Box<dyn Driver>, DeviceError> {
    if place.ranks == 1 {
        return open_with(target, None);
    }
    Ok(match open_own_gpu(target, place)? {
        Some(driver) => Box::new(driver),
        None => Box::new(Sim::new(Faults::default())),
    })
}

/// Opens the device of a rank, and connects it with those of the others: the simulated GPU, or the GPU of the rank's
/// number on its host; where it sees one alone, that one.
///
/// # Errors
/// As [`open`], and where ranks do not come together.
pub fn open_rank(
    target: &DeviceOptions,
    cublas: Option<Cublas>,
    ranks: &Ranks,
) -> Result<Box<dyn Driver>, DeviceError> {
    if ranks.count() == 1 {
        return open_with(target, cublas);
    }
    let place = &ranks.place;
    let Some(mut driver) = open_own_gpu(target, place)? else {
        let sim = Sim::new(Faults::default()).connected(place.rank, Box::new(ranks.mesh()?));
        return Ok(Box::new(sim));
    };
    let of_driver = ranks.clone();
    let all_gather = move |own: &[u8]| of_driver.all_gather(own).map_err(|failure| failure.to_string());
    let abort = driver.connect(place.rank, ranks.count(), Box::new(all_gather))?;
    ranks.on_failure(Box::new(move || abort.now()));
    cublas.map(|cublas| driver.set_cublas(cublas)).transpose()?;
    Ok(Box::new(driver))
}

/// Returns the rows that a device runs.
///
/// # Errors
/// [`DeviceError::Load`] if it takes the code of none.
pub fn rows(device: &Device) -> Result<Rows, DeviceError> {
    Ok(precast_runtime::rows(device)?)
}
