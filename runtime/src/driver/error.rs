//! Failed calls of a driver.

use std::fmt;

/// Says which driver is installed, and why it runs no kernel.
pub fn too_old((major, minor): (u32, u32)) -> String {
    // CUDA Toolkit release notes, "CUDA Driver": the first driver of each 12.x.
    const SERIES: [u32; 10] = [525, 530, 535, 545, 550, 555, 560, 565, 570, 575];
    let series = (major == 12).then(|| SERIES.get(minor as usize)).flatten();
    let series = series.map_or(String::new(), |series| format!(" (driver {series})"));
    format!(
        "it supports CUDA up to {major}.{minor}{series}, and only driver 580 and newer load the kernels' cubins, of \
        CUDA 13.0"
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
         is EAGER: something in this process initialized it earlier. Set CUDA_MODULE_LOADING=EAGER where the process \
         starts"
    )]
    Lazy,
    /// Another value of this process has a device open.
    #[error(
        "this process already has a GPU open, and nothing may be loaded while its kernels run: one process, one GPU"
    )]
    InUse,
    /// Modules are loaded beside cudarc, in this process, for as long as it lives.
    #[error(
        "this process has loaded modules beside cudarc, and opens no GPU of its own besides, which would load more \
         while their kernels may run: use another process"
    )]
    Loaded,
    /// A kernel that was loaded beside cudarc may run.
    #[error(
        "this process has launched a kernel that it loaded beside cudarc, and nothing may be loaded after that: load \
         every bundle of the program before the first launch, or the rest in another process"
    )]
    Launched,
    /// Modules are loaded beside cudarc, into another context.
    #[error(
        "this process has loaded modules into another CUDA context, and the driver loads each into every context: load \
         all bundles of the program into one"
    )]
    OtherModules,
    /// A stream of the context captures a graph.
    #[error(
        "a stream of the CUDA context captures a graph, and nothing may be loaded meanwhile: load before any capture \
        begins. \
         The driver has made that capture invalid"
    )]
    Capturing,
    /// The process has a context of another GPU.
    #[error(
        "this process has a context on GPU {ordinal} too, and modules are loaded into every context of a process: \
        one process, one \
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
        "out of host memory: {asked} bytes of pinned memory requested beside {taken} that were given{}. End other \
        programs, or \
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
