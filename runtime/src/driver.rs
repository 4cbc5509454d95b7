//! What the runtime asks of a GPU, real or simulated.

use std::time::Instant;

use precast_fatbins::Module;
use precast_kernels::{Arch, Geometry, Key, TensorMap};

use crate::activity::Activity;
use crate::cublas::{Cublas, Version};
use crate::gauge::Gauge;

/// A device, as people and checks see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `NVIDIA H200`, `simulated GPU`.
    pub name: String,
    /// How it was asked for: `cuda:0`, `sim`.
    pub ordinal: String,
    /// Compute capability; none for the simulated GPU.
    pub compute_capability: Option<(u32, u32)>,
    /// Highest CUDA version the driver takes; none for the simulated GPU.
    pub driver_version: Option<(u32, u32)>,
    /// All of its memory.
    pub total_bytes: u64,
    /// What of it is free; where it is the host's too, what a run can take of that ([`crate::host::takeable_bytes`]).
    pub free_bytes: u64,
    /// Whether it shares memory with the host (`CU_DEVICE_ATTRIBUTE_INTEGRATED`).
    pub integrated: bool,
    /// Multiprocessors, or host threads.
    pub multiprocessors: u32,
    /// Whether it runs the kernels that every architecture has, and none of its own.
    pub portable: bool,
}

impl Device {
    /// Whether what the host takes is missing on the device: a GPU that shares its memory.
    pub fn has_one_memory(&self) -> bool {
        self.integrated && self.compute_capability.is_some()
    }

    /// The architecture whose code this device runs, if there is one.
    pub fn arch(&self) -> Option<Arch> {
        match self.compute_capability {
            None => Some(Arch::Sim),
            Some((major, minor)) => Arch::of_device(major, minor, self.portable),
        }
    }
}

/// A loaded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelId(pub(crate) usize);

/// A prepared sequence of launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphId(pub(crate) usize);

/// A read under way.
#[derive(Debug, PartialEq, Eq)]
pub struct Ticket(pub(crate) usize);

/// Bytes read from the device.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub bytes: Vec<u8>,
    /// When they were there, as far as the host knows: a device that works alongside the host is known to
    /// be done when it is waited for, one that works inside the call that asked was done then.
    pub at: Instant,
}

/// A node of a plan with real addresses.
#[derive(Clone, Debug)]
pub struct Bound {
    /// What for, in messages.
    pub label: String,
    /// What is to be done.
    pub work: BoundWork,
    /// Earlier nodes of the same sequence that must have finished.
    pub dependencies: Vec<u32>,
}

/// The kinds of work that a device is given.
#[derive(Clone, Debug)]
pub enum BoundWork {
    Launch(BoundLaunch),
    Product(BoundProduct),
    Exchange(BoundExchange),
}

/// What cuBLASLt is on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CublasUse {
    pub version: Version,
    /// Device memory that it took when it was set up and when each product was first run.
    pub taken_bytes: u64,
}

/// A product of cuBLASLt.
#[derive(Clone, Debug)]
pub struct BoundProduct {
    /// What it computes.
    pub key: Key,
    /// The parameter block, with real addresses.
    pub params: Vec<u8>,
    /// Address and bytes of where it may work.
    pub workspace: (u64, u64),
    /// Address of the factors of product and addend; none where they are known now.
    pub factors: Option<u64>,
}

impl BoundProduct {
    /// The parameter block with each address 0: what is left is the product's shape.
    pub(crate) fn shape(&self) -> Vec<u8> {
        let mut params = self.params.clone();
        for operand in self.key.kernel().operands(&self.params) {
            params[operand.offset..operand.offset + 8].fill(0);
        }
        params
    }
}

impl BoundWork {
    /// What it computes; none of what only moves bytes.
    pub fn key(&self) -> Option<&Key> {
        match self {
            BoundWork::Launch(launch) => Some(&launch.key),
            BoundWork::Product(product) => Some(&product.key),
            BoundWork::Exchange(_) => None,
        }
    }
}

/// A launch of a loaded kernel.
#[derive(Clone, Debug)]
pub struct BoundLaunch {
    /// The loaded kernel.
    pub kernel: KernelId,
    /// What it computes.
    pub key: Key,
    /// Grid, block and dynamic shared memory.
    pub geometry: Geometry,
    /// The parameter block, with real addresses.
    pub params: Vec<u8>,
    /// Tensor maps of the parameter block that are still to be encoded.
    pub tensor_maps: Vec<TensorMap>,
}

/// Ranges of device memory from rank to rank.
#[derive(Clone, Debug)]
pub struct BoundExchange {
    /// To which rank, address and bytes.
    pub sends: Vec<(u32, u64, u64)>,
    /// From which rank, address and bytes.
    pub receives: Vec<(u32, u64, u64)>,
}

/// A call that failed. The codes are CUDA's: the simulated GPU uses the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// There is no driver on this machine.
    #[error(
        "no NVIDIA driver: libcuda.so is not on the library path. Install driver 580 or newer, or use --device sim"
    )]
    NoDriver,
    /// There is a driver and no GPU for it.
    #[error(
        "the NVIDIA driver sees no GPU{}. `nvidia-smi` lists the GPUs of this machine; or use --device sim",
        visible.as_ref().map(|value| format!(" (CUDA_VISIBLE_DEVICES is `{value}`)")).unwrap_or_default()
    )]
    NoGpu {
        /// What CUDA_VISIBLE_DEVICES lets through, where it is set.
        visible: Option<String>,
    },
    /// The driver is older than the kernels.
    #[error(
        "the NVIDIA driver is too old: it supports CUDA up to {}.{} and the kernels need CUDA 13.0. \
         Install driver 580 or newer, or use --device sim",
        takes.0,
        takes.1
    )]
    OldDriver {
        /// The highest CUDA version it takes.
        takes: (u32, u32),
    },
    /// A variable of the environment changes what would run.
    #[error("{name}={value} is set: {effect}; {remedy}")]
    Environment {
        name: &'static str,
        value: String,
        /// What it would do.
        effect: &'static str,
        /// What to do about it.
        remedy: String,
    },
    /// The driver would load kernels at their first launch.
    #[error(
        "the NVIDIA driver loads kernels lazily, at their first launch, although CUDA_MODULE_LOADING \
         is EAGER: something in this process initialized it earlier. Set CUDA_MODULE_LOADING=EAGER where the process starts"
    )]
    Lazy,
    /// Another value of this process has a device.
    #[error(
        "this process already has a GPU open, and nothing may be loaded while its kernels run: one process, one GPU"
    )]
    InUse,
    /// There is no such device.
    #[error("no device cuda:{ordinal}: the driver sees {count}")]
    NoDevice {
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// Memory ran out.
    #[error("out of device memory: {asked} bytes requested, {free} free")]
    OutOfMemory { asked: u64, free: u64 },
    /// The driver has no memory for what it keeps itself.
    #[error("out of device memory: the driver cannot {what}, and {free} bytes are free. {remedy}")]
    OutOfDriverMemory {
        what: String,
        free: u64,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The host's memory ran out, or what of it may be pinned.
    #[error(
        "out of host memory: {asked} bytes of pinned memory requested beside {taken} that were given{}. End other programs, or \
         raise the memory limit of the container or job that this runs in",
        available.map(|bytes| format!("; the system has {bytes} available")).unwrap_or_default()
    )]
    OutOfHostMemory {
        asked: u64,
        taken: u64,
        /// By /proc/meminfo, where that is there: a limit of the container is not in it.
        available: Option<u64>,
    },
    /// A driver call failed.
    #[error("{call} failed: {name} ({code}){context}")]
    Call {
        call: &'static str,
        /// CUDA's error code.
        code: u32,
        /// CUDA's name for it.
        name: String,
        /// On what, if that helps.
        context: String,
    },
    /// A device without cuBLASLt is to use it.
    #[error("the simulated GPU executes references, and no library: leave --gemm cublas out, or use --device cuda:0")]
    NoCublas,
    /// Ranks did not come together, or one of them is gone.
    #[error("{label}: {reason}")]
    Exchange {
        label: String,
        /// What went wrong.
        reason: String,
    },
    /// The simulated GPU found a launch that a real one might let pass.
    #[error("{label}: {reason}")]
    Launch {
        label: String,
        /// The reason why it cannot be used.
        reason: String,
    },
}

/// A GPU. Everything that happens after [`Driver::prepare`] is ordered: writes, launches and reads take
/// effect in the order they are asked for.
pub trait Driver {
    fn device(&self) -> &Device;

    /// Loads a module and makes its kernel resident.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn load(&mut self, module: &Module<'_>) -> Result<KernelId, DriverError>;

    /// How many modules have been loaded: counted where the driver is called.
    fn loads(&self) -> u64;

    /// Has cuBLASLt compute what [`BoundWork::Product`] says.
    ///
    /// # Errors
    /// [`DriverError`] of the library, or where the device cannot use it.
    fn set_cublas(&mut self, _cublas: Cublas) -> Result<(), DriverError> {
        Err(DriverError::NoCublas)
    }

    /// Which version computes products, and the device memory that it has taken for itself; none where it does not.
    fn cublas(&self) -> Option<CublasUse> {
        None
    }

    /// Takes device memory, aligned to 256 bytes. It is given back when the driver is dropped.
    ///
    /// # Errors
    /// [`DriverError::OutOfMemory`].
    fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError>;

    /// What the environment asked of its memory, for people; none where it said nothing.
    fn memory_note(&self) -> Option<String> {
        None
    }

    /// Device memory free now, bytes, counted as [`Device::free_bytes`] is.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn free_bytes(&self) -> Result<u64, DriverError>;

    /// Takes the pinned host memory that [`Driver::write`] and [`Driver::read`] go through; each moves at
    /// most `bytes` at once.
    ///
    /// # Errors
    /// [`DriverError::OutOfHostMemory`].
    fn stage(&mut self, bytes: u64) -> Result<(), DriverError>;

    /// Connects this device with those of the other ranks, which do the same, once all memory is taken and before anything is launched.
    ///
    /// # Errors
    /// [`DriverError::Exchange`].
    fn connect_ranks(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// How many ranks there are and by what they exchange, for people; none where there is one.
    fn ranks(&self) -> Option<String> {
        None
    }

    /// How long launches have waited for exchanges, and by them for ranks that came later, by the device's clock; seconds. None
    /// where nothing runs beside exchanges.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    fn waited_s(&mut self) -> Result<Option<f64>, DriverError> {
        Ok(None)
    }

    /// Begins to ask what it does, by its management library, beside all that is asked of it here; none of a device without one.
    fn gauge(&self) -> Option<Gauge> {
        None
    }

    /// What it is doing, for a thread that watches it.
    fn activity(&self) -> Activity {
        Activity::default()
    }

    /// Has the device write this number to [`Self::activity`] once it has done all that was asked of it so far. Nothing waits.
    ///
    /// # Errors
    /// [`DriverError`] of earlier work.
    fn mark(&mut self, _number: u32) -> Result<(), DriverError> {
        Ok(())
    }

    /// What is prepared from here on runs a node at a time: each is named in [`Self::activity`] and waited for.
    fn run_nodes_alone(&mut self) {}

    /// Prepares a sequence of nodes to be run again and again.
    ///
    /// # Errors
    /// [`DriverError`] of the driver.
    fn prepare(&mut self, nodes: &[Bound]) -> Result<GraphId, DriverError>;

    /// Runs a prepared sequence. Does not wait for it.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn run(&mut self, graph: GraphId) -> Result<(), DriverError>;

    /// Runs a prepared sequence after what was asked for so far, and beside what is asked for next, until [`Self::join`].
    ///
    /// # Errors
    /// As [`Self::run`].
    fn run_beside(&mut self, graph: GraphId) -> Result<(), DriverError> {
        self.run(graph)
    }

    /// What is asked for next comes after what runs beside.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn join(&mut self) -> Result<(), DriverError> {
        Ok(())
    }

    /// Runs a prepared sequence once to warm up and then `repeats` times, and waits. Returns the seconds that
    /// each of the latter took, by the device's own clock. A driver whose [`Self::run`] does wait has no other than the host's.
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

    /// Waits for a copy from device memory.
    ///
    /// # Errors
    /// [`DriverError`] of the driver, of this or earlier work.
    fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError>;
}
