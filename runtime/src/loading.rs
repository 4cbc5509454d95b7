//! The phase before the seal: loads modules, allocates memory and prepares graphs. Nothing can be launched yet.

use std::collections::{BTreeMap, BTreeSet};

use precast_core::plan::{Build, Cublas, Exchange, Executor, Launch, Plan, Tensor, Work, keys};
use precast_core::{Arch, KeyVariant, TEGRA};
use precast_fatbins::{Bundle, BundleError, Module};

use crate::cuda::Cuda;
use crate::driver::{
    Bound, BoundExchange, BoundGemm, BoundLaunch, BoundWork, Device, Driver, DriverError, GraphId, KernelId, Launches,
    Rows,
};
use crate::loads::Loads;
use crate::sealed::Sealed;
use crate::sim::{Faults, Sim};

/// Bytes of one pinned slot.
pub const STAGE_BYTES: u64 = 16 << 20;

/// Placement of a plan's buffers in device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// One allocation for all buffers.
    Arena,
    /// One allocation per buffer, so that memory checkers see overruns. For debugging: no memory is reused.
    Separate,
}

/// A driver that can load and cannot launch.
pub struct Loading {
    driver: Box<dyn Driver>,
    kernels: BTreeMap<KeyVariant, KernelId>,
    loads: Loads,
}

/// Kernels that a plan needs, against those of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of {needed} kernels that this run launches are not in the bundle for {}:\n{}Build them with: {remedy}",
    missing.len(),
    arch.argument(),
    missing.iter().map(|pair| format!("  {pair}{}\n", pair.of_file())).collect::<String>()
)]
pub struct Coverage {
    /// Architecture whose code the device loads.
    pub arch: Arch,
    /// Number of (key, variant) pairs that the plan launches.
    pub needed: usize,
    /// Pairs missing from the bundle, sorted.
    pub missing: Vec<KeyVariant>,
    /// Commands that build them.
    pub remedy: String,
}

/// A bundle that cannot be loaded, or not for this plan or device.
#[derive(thiserror::Error)]
pub enum LoadError {
    /// The bundle must not be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// No supported architecture runs on this device.
    #[error(
        "no build of Precast has kernels for {device}, compute capability {major}.{minor}{}: supported are {}. Use \
         another GPU, or the simulated one",
        if TEGRA.contains(&(*major, *minor)) { ", a Tegra chip, which takes no code of desktop GPUs" } else { "" },
        supported_capabilities()
    )]
    Unsupported {
        /// Name of the device.
        device: String,
        /// Major part of its compute capability.
        major: u32,
        /// Minor part of its compute capability.
        minor: u32,
    },
    /// The bundle has no code for the device.
    #[error(
        "the bundle has no code for {device}, which takes {}; it holds {}.\n\
         {remedy}",
        arch.argument(),
        if holds.is_empty() { "nothing".to_owned() } else {
            holds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ") }
    )]
    NoArch {
        /// Name of the device.
        device: String,
        /// Best architecture that the device takes.
        arch: Arch,
        /// Architectures of the bundle.
        holds: Vec<Arch>,
        /// Commands that build it.
        remedy: String,
    },
    /// Every missing kernel.
    #[error("{0}")]
    Missing(Coverage),
    /// The driver failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

precast_core::debug_is_display!(LoadError);

/// Lists supported compute capabilities and the features for them.
pub fn supported_capabilities() -> String {
    let row = |arch: Arch| {
        let (major, minor) = arch.compute_capability().unwrap_or_default();
        format!("{major}.{minor} ({})", arch.argument())
    };
    Arch::GPUS.map(row).join(", ")
}

impl Loading {
    /// Starts with nothing loaded.
    pub fn new(driver: Box<dyn Driver>) -> Self {
        Self { driver, kernels: BTreeMap::new(), loads: Loads::default() }
    }

    /// Starts on the simulated GPU.
    pub fn sim() -> Self {
        Self::new(Box::new(Sim::new(Faults::default())))
    }

    /// Starts on a GPU, with the machine code that a bundle has for it.
    ///
    /// # Errors
    /// Those of [`Cuda::open`].
    pub fn cuda(ordinal: u32, bundle: &Bundle<'_>) -> Result<Self, DriverError> {
        Ok(Self::new(Box::new(Cuda::open(ordinal, Launches::Own, &bundle.archs(), bundle.kernels())?)))
    }

    /// Gives the driver up for checks that load and launch by themselves.
    pub(crate) fn into_driver(self) -> Box<dyn Driver> {
        self.driver
    }

    /// Returns the properties of the device.
    pub fn device(&self) -> &Device {
        self.driver.device()
    }

    /// Returns the architecture that plans for the device are made for.
    ///
    /// # Errors
    /// [`LoadError::Unsupported`] if it takes the code of none.
    pub fn arch(&self) -> Result<Arch, LoadError> {
        rows(self.device()).map(|rows| rows.launches)
    }

    /// Verifies a bundle and loads every module that a plan launches.
    ///
    /// # Errors
    /// [`LoadError`] before the first load, if the bundle is invalid or incomplete; later ones are the driver's.
    pub fn load(&mut self, bundle: &Bundle<'_>, plan: &Plan) -> Result<(), LoadError> {
        bundle.verify()?;
        let arch = code_for(self.driver.device(), bundle)?;
        let modules = bundle.modules(arch).map_err(BundleError::from)?;
        let needed = keys(plan);
        cover(bundle, arch, &modules, &needed)?;
        for module in modules.iter().filter(|module| needed.contains(&module.pair)) {
            let kernel = self.loads.load(module, |permit| self.driver.load(module, permit))?;
            self.kernels.insert(module.pair.clone(), kernel);
        }
        Ok(())
    }

    /// Allocates all memory, binds and prepares every phase, and gives up the ability to load.
    ///
    /// # Errors
    /// [`DriverError`], out of memory among them.
    ///
    /// # Panics
    /// If the plan launches a kernel that [`Self::load`] did not load: it was given another plan.
    pub fn seal(mut self, plan: &Plan, placement: Placement) -> Result<Sealed, DriverError> {
        let driver = &mut self.driver;
        let addresses = match placement {
            Placement::Arena => {
                let arena = driver.allocate(plan.arena_bytes)?;
                plan.buffers.iter().map(|buffer| arena + buffer.offset).collect()
            }
            Placement::Separate => {
                let each = plan.buffers.iter().map(|buffer| driver.allocate(buffer.bytes()));
                each.collect::<Result<Vec<u64>, DriverError>>()?
            }
        };
        driver.stage(STAGE_BYTES)?;
        driver.connect_ranks()?;
        if plan.phases.iter().any(|phase| phase.beside) {
            driver.side_stream()?;
        }
        let mut graphs: Vec<(String, Vec<GraphId>)> = Vec::new();
        for phase in &plan.phases {
            let bound: Vec<Bound> = phase
                .nodes
                .iter()
                .map(|node| {
                    let work = match &node.work {
                        Work::Launch(launch) => bind(launch, &self.kernels, &addresses),
                        Work::Exchange(exchange) => BoundWork::Exchange(bind_exchange(exchange, &addresses)),
                    };
                    Bound { label: node.label.clone(), work, dependencies: node.dependencies.clone() }
                })
                .collect();
            let parts = phase.parts().map(|part| driver.prepare(&of_part(&bound, part)));
            graphs.push((phase.name.clone(), parts.collect::<Result<_, _>>()?));
        }
        Ok(Sealed::new(self.driver, self.loads.0, addresses, graphs, STAGE_BYTES))
    }
}

/// Binds a launch to the addresses of the buffers.
///
/// # Panics
/// If its kernel has not been loaded.
fn bind(launch: &Launch, kernels: &BTreeMap<KeyVariant, KernelId>, addresses: &[u64]) -> BoundWork {
    let params = launch.bind(|id| addresses[id.0 as usize]);
    let address = |tensor: Tensor| addresses[tensor.buffer.0 as usize] + tensor.offset;
    let key = launch.key.clone();
    match launch.by {
        Executor::Kernel(Build { variant, geometry }) => {
            let pair = KeyVariant { key, variant };
            let Some(kernel) = kernels.get(&pair) else { panic!("{pair} was not loaded") };
            let tensor_maps = pair.key.kernel().tensor_maps(variant, &params);
            BoundWork::Launch(BoundLaunch { kernel: *kernel, geometry, tensor_maps, key: pair.key, params })
        }
        Executor::Cublas(Cublas { workspace, factors }) => {
            let workspace = (address(workspace), workspace.bytes());
            BoundWork::Gemm(BoundGemm { key, params, workspace, factors: factors.map(address) })
        }
    }
}

/// Selects a part of a sequence. Dependencies in earlier parts are met before it begins.
fn of_part(nodes: &[Bound], part: std::ops::Range<usize>) -> Vec<Bound> {
    let first = part.start as u32;
    let own = |bound: &Bound| {
        let dependencies = bound.dependencies.iter().filter(|node| **node >= first).map(|node| node - first).collect();
        Bound { dependencies, ..bound.clone() }
    };
    nodes[part].iter().map(own).collect()
}

fn bind_exchange(exchange: &Exchange, addresses: &[u64]) -> BoundExchange {
    let address = |tensor: &Tensor| addresses[tensor.buffer.0 as usize] + tensor.offset;
    let range = |(rank, tensor): &(u32, Tensor)| (*rank, address(tensor), tensor.bytes());
    BoundExchange {
        sends: exchange.sends.iter().map(range).collect(),
        receives: exchange.receives.iter().map(range).collect(),
    }
}

/// Returns the rows that a device runs.
///
/// # Errors
/// [`LoadError::Unsupported`] if it takes the code of none.
pub fn rows(device: &Device) -> Result<Rows, LoadError> {
    let (major, minor) = device.compute_capability.unwrap_or_default();
    device.rows.ok_or_else(|| LoadError::Unsupported { device: device.name.clone(), major, minor })
}

/// Checks that a bundle's modules of an architecture are all that are needed.
pub(crate) fn cover<K>(
    bundle: &Bundle<'_, K>,
    arch: Arch,
    modules: &[Module<'_>],
    needed: &BTreeSet<KeyVariant>,
) -> Result<(), LoadError> {
    let is_missing = |pair: &&KeyVariant| modules.iter().all(|module| module.pair != **pair);
    let missing: Vec<KeyVariant> = needed.iter().filter(is_missing).cloned().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(LoadError::Missing(Coverage { arch, needed: needed.len(), missing, remedy: remedy(bundle, arch) }))
}

/// Returns the architecture whose code the device loads, if the bundle has it.
pub(crate) fn code_for<K>(device: &Device, bundle: &Bundle<'_, K>) -> Result<Arch, LoadError> {
    let arch = rows(device)?.code;
    let holds: Vec<Arch> = bundle.archs();
    if holds.contains(&arch) {
        return Ok(arch);
    }
    let holds = holds.into_iter().filter(|arch| *arch != Arch::Sim).collect();
    let remedy = format!("Build them with: {}", remedy(bundle, arch));
    Err(LoadError::NoArch { device: device.name.clone(), arch, holds, remedy })
}

/// Returns the command that builds what a bundle was built for, for an architecture.
fn remedy<K>(bundle: &Bundle<'_, K>, arch: Arch) -> String {
    (bundle.kernels().rebuild)(&bundle.manifest().built_for, &[arch])
}
