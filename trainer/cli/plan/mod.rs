//! `precast plan`, and `--dry-run` of `precast distill` and `precast train`

mod forms;
mod json;
mod planned;
mod room;
mod text;

use clap::Args;
use precast_kernels::Arch;
use precast_runtime::{Device, DriverError};

use super::print_json;
use crate::device::{self, DeviceError};
use crate::options::{DeviceChoice, FlagsAndFile, Purpose, RunConfig};
use crate::programs::failure::Failure;
use crate::ranks::{MOST_RANKS, Place, Ranks};
use planned::Planned;
use room::Room;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    options: FlagsAndFile,
    /// Plan for this architecture instead of the device's
    #[arg(long, value_name = "ARCH")]
    arch: Option<Arch>,
    /// Plan for a rank of so many: what rank 0 takes, which is as much as any
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_RANKS)))]
    gpus: Option<u32>,
    /// Compare with so many bytes of device memory instead of what is free on the device: a plan that does not fit exits with 4
    #[arg(long, value_name = "BYTES")]
    memory: Option<u64>,
    /// Ignored: a plan runs nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let options = arguments.options.options()?;
    let place = Place { ranks: arguments.gpus.unwrap_or(1), ..Place::default() };
    let config = options.resolve(Purpose::Plan, Ranks::of(&place).share(1), None)?;
    let mut target = target(&config, arguments.arch)?;
    if let Some(bytes) = arguments.memory {
        target.room = Some(Room { bytes, device: None });
    }
    show(&config, &target, arguments.json)
}

/// What a plan is for.
pub struct Target {
    arch: Arch,
    /// The GPU, where it is one that is there.
    device: Option<Device>,
    /// The memory that the plan is compared with; none of an architecture, and of the simulated GPU.
    room: Option<Room>,
}

impl Target {
    /// Whether host and device share their memory: known of a device that is there, not of an architecture.
    fn has_one_memory(&self) -> bool {
        self.device.as_ref().is_some_and(Device::has_one_memory)
    }
}

/// The architecture asked for, or the run's device.
pub fn target(config: &RunConfig, asked: Option<Arch>) -> Result<Target, Failure> {
    asked.map_or_else(|| found(config), |arch| Ok(Target { arch, device: None, room: None }))
}

/// The device that a run would take. A plan for the simulated GPU is of use to those who ask for it.
fn found(config: &RunConfig) -> Result<Target, Failure> {
    let choice = match config.target.device {
        DeviceChoice::Sim => return Ok(Target { arch: Arch::Sim, device: None, room: None }),
        DeviceChoice::Auto => DeviceChoice::Cuda(0),
        choice => choice,
    };
    match device::open(choice, &config.target.kernels) {
        Err(DeviceError::Driver(found @ (DriverError::NoDriver | DriverError::NoGpu { .. })))
            if config.target.device == DeviceChoice::Auto =>
        {
            let archs = Arch::GPUS.map(|arch| format!("--arch {}", arch.argument())).join(", ");
            Err(Failure::usage(format!("{found}.\nSay what to plan for: {archs}")))
        }
        opened => {
            let device = opened?.device().clone();
            let room = Room { bytes: device.free_bytes, device: Some(device.name.clone()) };
            Ok(Target { arch: device::arch(&device)?, device: Some(device), room: Some(room) })
        }
    }
}

/// Prints what a run would take.
///
/// # Errors
/// [`DeviceError::Unfit`], behind all that is printed, where that is more than there is.
pub fn show(config: &RunConfig, target: &Target, json: bool) -> Result<(), Failure> {
    let planned = Planned::of(config, target)?;
    if json {
        print_json(&planned.json());
    } else {
        planned.print();
    }
    planned.refusal.map_or(Ok(()), |refusal| Err(refusal.failure()))
}
