//! The interface to a GPU, real or simulated.

use std::fmt;
use std::time::Instant;

use precast_core::card::{Card, flops_per_clock};
use precast_core::chips::{Clocks, Peak};
use precast_core::tuned::Table;
use precast_core::{Arch, Geometry, Key, TensorMap};
use precast_fatbins::Module;

use crate::activity::Activity;
use crate::cublas::{Cublas, Version};
use crate::gauge::Gauge;
use crate::permit::Permit;

/// Properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `NVIDIA H200`, `simulated GPU`.
    pub name: String,
    /// Name on the command line: `cuda:0`, `sim`.
    pub ordinal: String,
    /// Compute capability; none for the simulated GPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Highest CUDA version the driver takes; none for the simulated GPU.
    pub driver_version: Option<(u32, u32)>,
    /// Total memory, bytes.
    pub total_bytes: u64,
    /// Free memory, bytes; if shared with the host, the part a run can take ([`crate::host::takeable_bytes`]).
    pub free_bytes: u64,
    /// True if it shares memory with the host (`CU_DEVICE_ATTRIBUTE_INTEGRATED`).
    pub integrated: bool,
    /// Multiprocessors, or host threads, and their clocks.
    pub clocks: Clocks,
    /// Rows that it runs; none if it takes the code of none.
    pub rows: Option<Rows>,
}

/// Kernels that a device is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// Those of the best row that it takes.
    Own,
    /// Portable ones, selected by measurements on the device at hand; without any, as for sm_89.
    Portable,
    /// Those of another row, built for the device: the device stands in for that row's GPUs.
    As(Arch),
}

/// Rows of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Row that plans are made for: its variants, as selected for it.
    pub launches: Arch,
    /// Row whose machine code is loaded.
    pub code: Arch,
}

impl Launches {
    /// Returns the rows that a device runs, of those there is code for (`held`): if it takes none of them, those that
    /// it would take. None where it takes no row's code.
    pub(crate) fn rows(self, device: &Device, held: &[Arch], tuned: &Table) -> Option<Rows> {
        let capability = device.compute_capability?;
        let held = held.iter().copied().filter(|arch| Arch::GPUS.contains(arch));
        let own = Arch::of_device(capability, held).or_else(|| Arch::of_device(capability, Arch::GPUS))?;
        let portable = if own.is_exact() { Arch::Sm90Portable } else { own };
        Some(match self {
            Launches::Own => Rows { launches: own, code: own },
            Launches::Portable if device.is_measured(portable, tuned) => Rows { launches: portable, code: portable },
            Launches::Portable => Rows { launches: Arch::Sm89, code: portable },
            Launches::As(arch) if arch == own => Rows { launches: own, code: own },
            Launches::As(arch) => Rows { launches: arch, code: portable },
        })
    }
}

impl Device {
    /// True if a table has launches of an architecture that were measured on this chip, or on one of the architecture
    /// with as many multiprocessors, within 5 %.
    pub fn is_measured(&self, arch: Arch, tuned: &Table) -> bool {
        let covers = |chip: &str| tuned.covers(chip, arch);
        let difference = arch.multiprocessors().abs_diff(self.clocks.multiprocessors);
        covers(&self.name) || (20 * difference <= arch.multiprocessors() && arch.chip().is_some_and(covers))
    }

    /// Returns the figures that launches are selected by where nothing was measured; none where they are not known.
    pub fn card(&self) -> Option<Card> {
        let flops_per_clock = flops_per_clock(&self.name, self.compute_capability?)?;
        Some(Card { multiprocessors: self.clocks.multiprocessors, flops_per_clock })
    }

    /// True for a GPU that shares the host's memory: host allocations reduce the device's.
    pub fn has_one_memory(&self) -> bool {
        self.integrated && self.compute_capability.is_some()
    }

    /// Returns the highest rates of the device; none for the simulated GPU.
    pub fn peak(&self) -> Option<Peak> {
        Peak::of_device(&self.name, self.compute_capability, self.clocks)
    }

    /// Returns the architecture whose launches this device runs, if supported.
    pub fn arch(&self) -> Option<Arch> {
        self.rows.map(|rows| rows.launches)
    }
}

/// A loaded kernel of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelId(pub(crate) usize);

/// A prepared sequence of one driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphId(pub(crate) usize);

/// A read in progress.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(pub(crate) usize);

/// Bytes that were read from the device.
#[derive(Clone, Debug)]
pub struct Arrived {
    /// The bytes, as many as were asked for.
    pub bytes: Vec<u8>,
    /// Time of completion as far as the host knows: an asynchronous device is known to be finished when it is waited
    /// for, a synchronous one at the end of the call.
    pub at: Instant,
}

/// A node of a plan with real addresses.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Name in messages.
    pub label: String,
    /// Work to do.
    pub work: BoundWork,
    /// Earlier nodes of the sequence that must have finished.
    pub dependencies: Vec<u32>,
}

/// Work of a node.
#[derive(Clone, Debug)]
pub enum BoundWork {
    /// A kernel of the bundle is launched.
    Launch(BoundLaunch),
    /// cuBLASLt computes a GEMM.
    Gemm(BoundGemm),
    /// Bytes go from rank to rank.
    Exchange(BoundExchange),
}

/// cuBLASLt on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CublasUse {
    /// Version of the library.
    pub version: Version,
    /// Device memory allocated at its setup and at each GEMM's first run, bytes.
    pub taken_bytes: u64,
}

/// A GEMM of cuBLASLt.
#[derive(Clone, Debug)]
pub struct BoundGemm {
    /// Key of the kernel.
    pub key: Key,
    /// The parameter block, with real addresses.
    pub params: Vec<u8>,
    /// Workspace: address and bytes.
    pub workspace: (u64, u64),
    /// Address of alpha and beta; none if they are constants.
    pub factors: Option<u64>,
}

impl BoundGemm {
    /// Returns the parameter block with addresses set to 0: the GEMM's shape.
    pub(crate) fn shape(&self) -> Vec<u8> {
        let mut params = self.params.clone();
        for operand in self.key.kernel().operands(&self.params) {
            params[operand.offset..operand.offset + 8].fill(0);
        }
        params
    }
}

impl BoundWork {
    /// Returns the kernel key; none for an exchange.
    pub fn key(&self) -> Option<&Key> {
        match self {
            BoundWork::Launch(launch) => Some(&launch.key),
            BoundWork::Gemm(gemm) => Some(&gemm.key),
            BoundWork::Exchange(_) => None,
        }
    }
}

/// A launch of a loaded kernel.
#[derive(Clone, Debug)]
pub struct BoundLaunch {
    /// Kernel, as [`Driver::load`] returned it.
    pub kernel: KernelId,
    /// Key of the kernel.
    pub key: Key,
    /// Grid, block and dynamic shared memory.
    pub geometry: Geometry,
    /// The parameter block, with real addresses.
    pub params: Vec<u8>,
    /// Tensor maps of the parameter block, not yet encoded.
    pub tensor_maps: Vec<TensorMap>,
}

/// Ranges of device memory to and from other ranks.
#[derive(Clone, Debug)]
pub struct BoundExchange {
    /// Receiving rank, address and bytes.
    pub sends: Vec<(u32, u64, u64)>,
    /// Sending rank, address and bytes.
    pub receives: Vec<(u32, u64, u64)>,
}

/// Says which driver is installed, and why it runs no kernel.
pub fn too_old((major, minor): (u32, u32)) -> String {
    // CUDA Toolkit release notes, "CUDA Driver": the first driver of each 12.x.
    const SERIES: [u32; 10] = [525, 530, 535, 545, 550, 555, 560, 565, 570, 575];
    let series = (major == 12).then(|| SERIES.get(minor as usize)).flatten();
    let series = series.map_or(String::new(), |series| format!(" (driver {series})"));
    format!(
        "it supports CUDA up to {major}.{minor}{series}, and only driver 580 and newer load the kernels' cubins, of CUDA 13.0"
    )
}

/// A failed call. The codes are CUDA's, also on the simulated GPU.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// This machine has no driver.
    #[error(
        "no NVIDIA driver: libcuda.so is not on the library path. Install driver 580 or newer, or use the simulated GPU"
    )]
    NoDriver,
    /// The driver sees no GPU.
    #[error(
        "the NVIDIA driver sees no GPU{}. `nvidia-smi` lists the GPUs of this machine; or use the simulated GPU",
        visible.as_ref().map(|value| format!(" (CUDA_VISIBLE_DEVICES is `{value}`)")).unwrap_or_default()
    )]
    NoGpu {
        /// Value of CUDA_VISIBLE_DEVICES, if set.
        visible: Option<String>,
    },
    /// The driver is older than the kernels.
    #[error(
        "the NVIDIA driver is too old: {}. Install driver 580 or newer, or use the simulated GPU",
        too_old(*takes)
    )]
    OldDriver {
        /// Highest CUDA version that it supports.
        takes: (u32, u32),
    },
    /// An environment variable changes the code that would run.
    #[error("{name}={value} is set: {effect}; {remedy}")]
    Environment {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// Its effect.
        effect: &'static str,
        /// Way out.
        remedy: String,
    },
    /// The driver would load kernels at their first launch.
    #[error(
        "the NVIDIA driver loads kernels lazily, at their first launch, although CUDA_MODULE_LOADING \
         is EAGER: something in this process initialized it earlier. Set CUDA_MODULE_LOADING=EAGER where the process starts"
    )]
    Lazy,
    /// Another value of this process has a device open.
    #[error(
        "this process already has a GPU open, and nothing may be loaded while its kernels run: one process, one GPU"
    )]
    InUse,
    /// Modules are loaded beside cudarc, in this process, for as long as it lives.
    #[error(
        "this process has loaded its modules beside cudarc, and nothing more may be loaded while their kernels may run: load \
         every kernel of the program in one call, or the rest in another process"
    )]
    Loaded,
    /// A stream of the context captures a graph.
    #[error(
        "a stream of the CUDA context captures a graph, and nothing may be loaded meanwhile: load before any capture begins. \
         The driver has made that capture invalid"
    )]
    Capturing,
    /// The process has a context of another GPU.
    #[error(
        "this process has a context on GPU {ordinal} too, and modules are loaded into every context of a process: one process, one \
         GPU"
    )]
    OtherContext {
        /// Number of the other GPU.
        ordinal: u32,
    },
    /// The driver has no GPU of this number.
    #[error("no device cuda:{ordinal}: the driver sees {count}")]
    NoDevice {
        /// Number that was asked for.
        ordinal: u32,
        /// Number of devices.
        count: u32,
    },
    /// Device memory ran out.
    #[error("out of device memory: {asked} bytes requested, {free} free")]
    OutOfMemory {
        /// Bytes that were asked for.
        asked: u64,
        /// Free device memory, bytes.
        free: u64,
    },
    /// The driver has no memory for its own objects.
    #[error("out of device memory: the driver cannot {what}, and {free} bytes are free. {remedy}")]
    OutOfDriverMemory {
        /// Action that needs it.
        what: String,
        /// Free device memory, bytes.
        free: u64,
        /// Ways to free some.
        remedy: MoreMemory,
    },
    /// Host memory, or the pinnable part of it, ran out.
    #[error(
        "out of host memory: {asked} bytes of pinned memory requested beside {taken} that were given{}. End other programs, or \
         raise the memory limit of the container or job that this runs in",
        available.map(|bytes| format!("; the system has {bytes} available")).unwrap_or_default()
    )]
    OutOfHostMemory {
        /// Bytes that were asked for.
        asked: u64,
        /// Pinned bytes that this process has.
        taken: u64,
        /// From /proc/meminfo, if present: a container's limit is not in it.
        available: Option<u64>,
    },
    /// A call of the driver failed.
    #[error("{call} failed: {name} ({code}){context}")]
    Call {
        /// Function that was called.
        call: &'static str,
        /// CUDA's code of the error.
        code: u32,
        /// CUDA's name of the error.
        name: String,
        /// Object of the call; may be empty.
        context: String,
    },
    /// The device cannot use cuBLASLt.
    #[error("the simulated GPU executes references, and no library: do without cuBLASLt, or use a GPU")]
    NoCublas,
    /// Ranks failed to connect, or one of them is gone.
    #[error("{label}: {reason}")]
    Exchange {
        /// Name of the node.
        label: String,
        /// Cause of the failure, for people.
        reason: String,
    },
    /// The simulated GPU rejects a launch that a real one might accept.
    #[error("{label}: {reason}")]
    Launch {
        /// Name of the node.
        label: String,
        /// Rule that the launch violates.
        reason: String,
    },
}

/// Ways to leave the driver more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreMemory {
    /// Only other programs hold any.
    EndOthers,
    /// Other programs hold some, and this one's buffers too.
    SmallerBuffers,
}

impl fmt::Display for MoreMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("End other programs on this GPU (nvidia-smi lists them)")?;
        match self {
            Self::EndOthers => Ok(()),
            Self::SmallerBuffers => f.write_str(", or let this one take less, by smaller buffers"),
        }
    }
}

precast_core::debug_is_display!(DriverError);

/// A GPU. All work after [`Driver::prepare`] is ordered: writes, launches and reads take effect in call order.
pub trait Driver {
    /// Returns the properties of the device.
    fn device(&self) -> &Device;

    /// Loads a module and makes its kernel resident. Only this crate can call it: it makes the [`Permit`].
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn load(&mut self, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError>;

    /// Returns the number of modules loaded, counted where the driver is called.
    fn loads(&self) -> u64;

    /// Computes [`BoundWork::Gemm`] by cuBLASLt from now on.
    ///
    /// # Errors
    /// [`DriverError`] of the library, or if the device cannot use it.
    fn set_cublas(&mut self, _cublas: Cublas) -> Result<(), DriverError> {
        Err(DriverError::NoCublas)
    }

    /// Returns the version that computes GEMMs and its device memory; none without cuBLASLt.
    fn cublas(&self) -> Option<CublasUse> {
        None
    }

    /// Allocates device memory, aligned to 256 bytes. Dropping the driver frees it.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`] if it does not fit.
    fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError>;

    /// Describes the kind of memory that the environment requests, for people; none without a request.
    fn memory_note(&self) -> Option<String> {
        None
    }

    /// Returns free device memory, bytes, counted like [`Device::free_bytes`].
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn free_bytes(&self) -> Result<u64, DriverError>;

    /// Allocates the pinned host memory of [`Driver::write`] and [`Driver::read`]; each moves at most `bytes` at once.
    ///
    /// # Errors
    /// [`DriverError::OutOfHostMemory`] if it cannot be pinned.
    fn stage(&mut self, bytes: u64) -> Result<(), DriverError>;

    /// Connects this device with those of the other ranks, which do the same, after all allocations and before the
    /// first launch.
    ///
    /// # Errors
    /// [`DriverError::Exchange`] if a rank cannot be reached.
    fn connect_ranks(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Describes the number of ranks and their backend, for people; none for one rank.
    fn ranks(&self) -> Option<String> {
        None
    }

    /// Returns the time that launches waited for exchanges, and so for slower ranks, by the device's clock, seconds.
    /// None if nothing runs beside exchanges.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    fn waited_s(&mut self) -> Result<Option<f64>, DriverError> {
        Ok(None)
    }

    /// Starts reading the GPU's state by its management library, beside all other work; none for a device without one.
    fn gauge(&self) -> Option<Gauge> {
        None
    }

    /// Returns the device's activity, for a watching thread.
    fn activity(&self) -> Activity {
        Activity::default()
    }

    /// Makes the device write this number to [`Self::activity`] once it has finished all work so far. Does not wait.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    fn mark(&mut self, _number: u32) -> Result<(), DriverError> {
        Ok(())
    }

    /// Prepares a sequence of nodes for repeated runs.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn prepare(&mut self, nodes: &[Bound]) -> Result<GraphId, DriverError>;

    /// Runs a prepared sequence without waiting for it.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn run(&mut self, graph: GraphId) -> Result<(), DriverError>;

    /// Runs a prepared sequence after all work so far, and beside later work until [`Self::join`].
    ///
    /// # Errors
    /// Those of [`Self::run`].
    fn run_beside(&mut self, graph: GraphId) -> Result<(), DriverError> {
        self.run(graph)
    }

    /// Makes the stream of [`Self::run_beside`], where there is none yet.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn side_stream(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Orders later work after the side sequence.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    fn join(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Runs a prepared sequence once to warm up and then `repeats` times, and waits. Returns the seconds per timed run,
    /// by the device's own clock; by the host's for a driver whose [`Self::run`] waits.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn time(&mut self, graph: GraphId, repeats: u32) -> Result<f64, DriverError> {
        self.run(graph)?;
        let start = Instant::now();
        (0..repeats).try_for_each(|_| self.run(graph))?;
        Ok(start.elapsed().as_secs_f64() / f64::from(repeats))
    }

    /// Copies to device memory. `bytes` may be reused at once; nothing waits.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DriverError>;

    /// Starts a copy from device memory.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn read(&mut self, address: u64, bytes: u64) -> Result<Ticket, DriverError>;

    /// Allocates pinned host memory for [`Driver::spill`] and [`Driver::fetch`].
    ///
    /// # Errors
    /// [`DriverError::OutOfHostMemory`] if it cannot be pinned.
    fn pin(&mut self, bytes: u64) -> Result<(), DriverError>;

    /// Copies from device memory to pinned memory, `start` bytes from its beginning. Does not wait.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    ///
    /// # Panics
    /// If so much is not pinned.
    fn spill(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError>;

    /// Copies back to device memory what [`Driver::spill`] has copied from it. Does not wait.
    ///
    /// # Errors
    /// Those of [`Driver::spill`].
    ///
    /// # Panics
    /// As [`Driver::spill`].
    fn fetch(&mut self, address: u64, bytes: u64, start: u64) -> Result<(), DriverError>;

    /// Waits for a copy from device memory.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError>;
}
