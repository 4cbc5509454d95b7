//! A bundle's kernels beside cudarc: on streams and buffers that a program manages itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, sys};
use precast_core::{
    Arch, Geometry, Kernels, Key, KeyVariant, LaunchPlain, PlainKernel, PlainUnit, Registered, Variant,
};
use precast_fatbins::{Bundle, BundleError};

use crate::cuda::call::{check, check_on};
use crate::cuda::library::{self, Libraries};
use crate::cuda::sole::Sole;
use crate::cuda::{count, describe, find, start};
use crate::driver::{Device, DriverError, Launches};
use crate::loading::{LoadError, code_for, cover};
use crate::loads::{Load, Loads};

/// Every module of a bundle for one GPU, loaded into a context of cudarc: launches on any of its streams, and cannot
/// load.
///
/// A process loads every bundle, its libraries' and its own, before it launches a kernel of one; kernels of two bundles
/// do not clash, whatever their names. What was loaded stays until the process ends, also when this value is dropped,
/// since launches and captured graphs may outlive it; so a load after the first launch is [`DriverError::Launched`],
/// and a [`Cuda`](crate::cuda::Cuda) opened later [`DriverError::Loaded`]. A load or a launch waits for a load under
/// way. [`Modules::load`] waits for all work of the context; the program must not launch other kernels from other
/// threads meanwhile, nor load modules by cudarc later, nor make another context: the driver loads every module into
/// each context that there is and that is made later (CUDA driver API, `cuLibraryLoadData`).
///
/// A program that links this crate has `CUDA_MODULE_LOADING` and `CUDA_MODULE_DATA_LOADING` set to `EAGER`, and
/// `NCCL_NVLS_ENABLE` to 0, before `main`.
///
/// ```ignore
/// let modules = Modules::open(0, &bundle, &[Key::new(Saxpy { x: Dtype::F32 })])?;
/// let stream = modules.context().new_stream()?;
/// let (x, mut y) = (stream.clone_htod(&x)?, stream.clone_htod(&y)?);
/// {
///     // cudarc's guards, alive until the launch is queued, order streams that share a buffer.
///     let ((x, _x), (y, _y)) = (x.device_ptr(&stream), y.device_ptr_mut(&stream));
///     // SAFETY: x and y are buffers of n elements on this context, and apart.
///     unsafe { modules.launch(&stream, Saxpy { x: Dtype::F32 }, SaxpyArgs { x, y, n, a: 2.0 })? };
/// }
/// ```
pub struct Modules {
    context: Arc<CudaContext>,
    device: Device,
    /// Architecture that variants are selected for.
    arch: Arch,
    kernels: &'static Kernels,
    functions: BTreeMap<KeyVariant, Function>,
    loaded: Vec<Load>,
    /// Held from the moment that a launch sets its kernel's limit of shared memory until it is queued.
    launching: Mutex<()>,
}

/// A loaded kernel, and the largest CTA that its machine code takes, threads.
struct Function(sys::CUfunction, u32);

// SAFETY: the driver takes its handles from any thread on which their context is current.
unsafe impl Send for Function {}
// SAFETY: as above; launches of one function are serialized by the caller.
unsafe impl Sync for Function {}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} modules for {} on {}", self.loaded.len(), self.arch.argument(), self.device.ordinal)
    }
}

impl Modules {
    /// Verifies a bundle and loads all of its modules for a GPU into the GPU's primary context, which [`Self::context`]
    /// returns. `keys` are those that the program launches.
    ///
    /// # Errors
    /// [`LoadError`] before the first load: a bundle that is invalid, has no code for the GPU, or lacks one of `keys`
    /// (all of them are named); no driver or no such GPU; [`DriverError::InUse`], [`DriverError::Launched`],
    /// [`DriverError::OtherModules`], [`DriverError::Capturing`], [`DriverError::OtherContext`]. Later ones are the
    /// driver's.
    pub fn open<K>(ordinal: u32, bundle: &Bundle<'_, K>, keys: &[Key]) -> Result<Self, LoadError> {
        let sole = Sole::beside()?;
        find(ordinal)?;
        let context = from_cudarc("cuDevicePrimaryCtxRetain", CudaContext::new(ordinal as usize))?;
        Self::into_context(sole, context, bundle, keys)
    }

    /// Verifies a bundle, waits for all work of a context, and loads all modules for its GPU into it. `keys` are those
    /// that the program launches.
    ///
    /// # Errors
    /// Those of [`Self::open`]. [`DriverError::Capturing`] ends the capture that it refuses, as any call does that
    /// waits for the context.
    pub fn load<K>(context: Arc<CudaContext>, bundle: &Bundle<'_, K>, keys: &[Key]) -> Result<Self, LoadError> {
        let sole = Sole::beside()?;
        start()?;
        Self::into_context(sole, context, bundle, keys)
    }

    fn into_context<K>(
        sole: Sole,
        context: Arc<CudaContext>,
        bundle: &Bundle<'_, K>,
        keys: &[Key],
    ) -> Result<Self, LoadError> {
        bundle.verify()?;
        let kernels = bundle.kernels();
        from_cudarc("cuCtxSetCurrent", context.bind_to_thread())?;
        let mut device = describe(context.ordinal() as u32, context.cu_device())?;
        device.rows = Launches::Own.rows(&device, &bundle.archs(), kernels.tuned());
        let code = code_for(&device, bundle)?;
        // Own launches are of the code that is loaded.
        let arch = code;
        let modules = bundle.modules(code).map_err(BundleError::from)?;
        // A plain kernel that has a reference is asked for by either key.
        let own = |key: &Key| kernels.parse(key.text()).unwrap_or_else(|_| key.clone());
        let needed: BTreeSet<KeyVariant> =
            keys.iter().flat_map(|key| own(key).built(arch).collect::<Vec<_>>()).collect();
        cover(bundle, arch, &modules, &needed)?;
        let address = context.cu_ctx() as usize;
        sole.admits(address)?;
        alone(context.ordinal())?;
        wait_for_all_work()?;
        let (mut libraries, mut loads, mut functions) = (Libraries::default(), Loads::default(), BTreeMap::new());
        for module in modules {
            let function = loads.load(&module, |permit| libraries.load(&module, permit))?;
            let most = module.entry.code.as_ref().map_or(0, |code| code.max_threads);
            functions.insert(module.pair, Function(function, most));
        }
        libraries.keep();
        sole.loaded(address);
        let launching = Mutex::new(());
        Ok(Self { context, device, arch, kernels, functions, loaded: loads.0, launching })
    }

    /// Returns the context, for streams and buffers.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Returns the GPU.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the loaded modules, in order.
    pub fn loaded(&self) -> &[Load] {
        &self.loaded
    }

    /// Queues a launch on a stream, or adds it to the graph that the stream captures. Addresses in the parameter block
    /// are of device memory; the variant is the registry's for this GPU.
    ///
    /// # Errors
    /// [`DriverError::Launch`] if the bundle lacks the kernel, as it does none of the keys that it was loaded with; if
    /// no variant admits the parameters; if the stream is of another context; or if an operand is not aligned to 16
    /// bytes. Otherwise a failed call, of this or earlier work.
    ///
    /// # Safety
    /// Each operand that the kernel declares for these parameters lies, with all of its bytes, in memory that the GPU
    /// can access in this context until the launch, or each launch of the graph, has ended. Until then nothing else
    /// writes to an operand, nothing else touches one that the kernel writes, and none of the latter overlaps another
    /// operand.
    pub unsafe fn launch<K: Registered>(
        &self,
        stream: &CudaStream,
        kernel: K,
        params: impl Into<K::Params>,
    ) -> Result<(), DriverError> {
        let params = precast_core::bytes(&kernel, &params.into());
        let key = Key::new(kernel);
        let mut variants = key.kernel().variants(self.arch).into_iter();
        if !variants.any(|variant| key.kernel().admits(variant, &params)) {
            let reason = format!("no variant for {} admits these parameters", self.arch.argument());
            return Err(DriverError::Launch { label: key.to_string(), reason });
        }
        let variant = self.kernels.select(&key, &params, self.arch);
        let pair = KeyVariant { key, variant };
        let kernel = pair.key.kernel();
        for operand in kernel.operands(&params) {
            let address: u64 = bytemuck::pod_read_unaligned(&params[operand.offset..operand.offset + 8]);
            if !address.is_multiple_of(16) {
                let reason = format!("operand `{}` at {address:#x} is not aligned to 16 bytes", operand.name);
                return Err(DriverError::Launch { label: pair.to_string(), reason });
            }
        }
        // SAFETY: the caller's.
        unsafe { self.queue(stream, &pair, kernel.geometry(variant, &params), &params) }
    }

    /// Names a stream for launches of plain kernels: `unsafe { saxpy(modules.on(&stream), geometry, ..) }`.
    pub fn on<'m>(&'m self, stream: &'m CudaStream) -> OnStream<'m> {
        OnStream { modules: self, stream }
    }

    /// Queues a launch.
    ///
    /// # Safety
    /// That of [`Self::launch`] and of [`LaunchPlain::launch_plain`].
    unsafe fn queue(
        &self,
        stream: &CudaStream,
        pair: &KeyVariant,
        geometry: Geometry,
        params: &[u8],
    ) -> Result<(), DriverError> {
        let refuse = |reason: String| Err(DriverError::Launch { label: pair.to_string(), reason });
        let Some(Function(function, most)) = self.functions.get(pair) else {
            return refuse(
                "is not in the bundle; name its key where the modules are loaded, to know at start-up".into(),
            );
        };
        if stream.context().cu_ctx() != self.context.cu_ctx() {
            return refuse("its modules are in another context than the stream".into());
        }
        let threads: u32 = geometry.block.iter().product();
        if threads > *most {
            return refuse(format!("a block of {threads} threads: its machine code takes at most {most}"));
        }
        from_cudarc("cuCtxSetCurrent", self.context.bind_to_thread())?;
        let _launching = self.launching.lock().unwrap_or_else(PoisonError::into_inner);
        let tensor_maps = pair.key.kernel().tensor_maps(pair.variant, params);
        let mut bytes = library::ready(*function, &geometry, params, &tensor_maps, pair)?;
        let mut arguments = library::arguments(&pair.key, &mut bytes);
        Sole::launched();
        let ([gx, gy, gz], [bx, by, bz], shared) = (geometry.grid, geometry.block, geometry.shared_bytes);
        // SAFETY: the function is of this context, which is current, and so is the stream. The driver copies the block,
        // whose size verification has compared with the kernel's. The memory is the caller's.
        let queued = unsafe {
            let stream = stream.cu_stream();
            sys::cuLaunchKernel(*function, gx, gy, gz, bx, by, bz, shared, stream, arguments.as_mut_ptr(), null_mut())
        };
        check_on("cuLaunchKernel", queued, pair)
    }
}

/// A stream, and the modules that launch on it.
#[derive(Clone, Copy, Debug)]
pub struct OnStream<'m> {
    modules: &'m Modules,
    stream: &'m CudaStream,
}

impl LaunchPlain for OnStream<'_> {
    type Error = DriverError;

    /// Queues a launch, or adds it to the graph that the stream captures.
    ///
    /// # Errors
    /// [`DriverError::Launch`] if the bundle lacks the kernel or has another library's of that name, the stream is of
    /// another context, or a block is larger than the machine code takes. Otherwise a failed call, of this or earlier
    /// work.
    unsafe fn launch_plain(
        self,
        kernel: &'static PlainKernel,
        geometry: Geometry,
        parameters: &[u8],
    ) -> Result<(), DriverError> {
        let pair = KeyVariant { key: Key::of_plain(kernel), variant: Variant::new(&[]) };
        // One with a reference has variants of other geometries, and the machine code of each is the file's.
        let mut loaded = self.modules.functions.range(&pair..).map(|(loaded, _)| loaded);
        let loaded = loaded.next().filter(|loaded| loaded.key == pair.key).unwrap_or(&pair);
        let (arch, own) = (self.modules.arch, kernel.unit);
        let is_own = |unit: &PlainUnit| std::ptr::eq(unit, own) || loaded.entry(arch) == pair.entry(arch);
        if !loaded.key.plain().is_some_and(|other| is_own(other.unit)) {
            let (library, path) = (self.modules.kernels.program, own.source.path);
            let reason = format!("is of {path}; the kernel of that name in the modules of {library} is another");
            return Err(DriverError::Launch { label: pair.to_string(), reason });
        }
        // SAFETY: the caller's.
        unsafe { self.modules.queue(self.stream, loaded, geometry, parameters) }
    }
}

/// Refuses a process that has another GPU's context: the driver loads a module into every context, and those have work
/// of their own.
fn alone(ordinal: usize) -> Result<(), DriverError> {
    for other in (0..count()?).filter(|other| *other as usize != ordinal) {
        let (device, mut flags, mut active) = (find(other)?, 0, 0);
        // SAFETY: writes integers; the device is there.
        let state = unsafe { sys::cuDevicePrimaryCtxGetState(device, &mut flags, &mut active) };
        check("cuDevicePrimaryCtxGetState", state)?;
        if active != 0 {
            return Err(DriverError::OtherContext { ordinal: other });
        }
    }
    Ok(())
}

/// Waits until no stream of the current context has work.
fn wait_for_all_work() -> Result<(), DriverError> {
    use sys::CUresult as Code;
    // SAFETY: waits for the current context.
    match unsafe { sys::cuCtxSynchronize() } {
        Code::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        | Code::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        | Code::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => Err(DriverError::Capturing),
        result => check("cuCtxSynchronize", result),
    }
}

/// Names the call of a result of cudarc.
fn from_cudarc<T>(call: &'static str, result: Result<T, cudarc::driver::DriverError>) -> Result<T, DriverError> {
    result.or_else(|error| check(call, error.0).map(|()| unreachable!("an error is not a success")))
}
