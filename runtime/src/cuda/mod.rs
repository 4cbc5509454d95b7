//! The NVIDIA driver.
//!
//! Everything here speaks to `libcuda` through cudarc's generated bindings. Graphs are made of explicit nodes and the
//! plan's own edges; copies go through pinned slots that are reused once their event has passed.

mod call;
mod environment;
mod graph;
mod memory;
mod products;
mod sole;
mod stage;
mod tensor_map;
mod timer;

pub use stage::SLOTS as STAGE_SLOTS;

use std::ffi::{CString, c_void};

use cudarc::driver::sys;
use precast_fatbins::Module;

use crate::cublas::Cublas;
use crate::driver::{Arrived, Bound, BoundWork, CublasUse, Device, Driver, DriverError, GraphId, KernelId, Ticket};
use call::check;
use graph::Graph;
use products::Products;
use sole::Sole;
use stage::Stage;
use timer::Timer;

/// The least CUDA version a driver must take, as `cuDriverGetVersion` counts: that of the 580 series, for whose loader
/// the kernels are compiled.
const LEAST_DRIVER: i32 = 13000;

/// Whether there is a driver on this machine. cudarc panics without one, so ask first.
pub fn is_present() -> bool {
    // SAFETY: loading libcuda runs its initialisers, which have no preconditions.
    unsafe { sys::is_culib_present() }
}

/// One device, its context, and what has been loaded and taken on it.
pub struct Cuda {
    device: Device,
    handle: sys::CUdevice,
    stream: sys::CUstream,
    kernels: Vec<sys::CUfunction>,
    libraries: Vec<sys::CUlibrary>,
    memory: Vec<sys::CUdeviceptr>,
    graphs: Vec<sys::CUgraphExec>,
    products: Option<Products>,
    stage: Option<Stage>,
    /// How memory is taken, if the environment says it.
    kind: Option<memory::Kind>,
    loads: u64,
    /// Given back last: nothing of this value is left then.
    _sole: Sole,
}

impl Cuda {
    /// Opens a device, to run its own kernels or the `portable` ones that every architecture has.
    ///
    /// # Errors
    /// [`DriverError::InUse`], [`DriverError::Environment`], [`DriverError::NoDriver`], [`DriverError::OldDriver`],
    /// [`DriverError::NoGpu`], [`DriverError::NoDevice`], [`DriverError::Lazy`], or a failed call.
    pub fn open(ordinal: u32, portable: bool) -> Result<Self, DriverError> {
        let sole = Sole::take()?;
        environment::check(|name| std::env::var_os(name))?;
        let kind = memory::Kind::asked(|name| std::env::var_os(name))?;
        if !is_present() {
            return Err(DriverError::NoDriver);
        }
        initialize()?;
        let (mut count, mut handle, mut context, mut stream) = (0, 0, std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: each call writes to a variable of the type it takes; the context made current here stays
        // current on this thread for as long as this value lives.
        unsafe {
            check("cuDeviceGetCount", sys::cuDeviceGetCount(&mut count))?;
            if count == 0 {
                return Err(no_gpu());
            }
            if i64::from(ordinal) >= i64::from(count) {
                return Err(DriverError::NoDevice { ordinal, count: count as u32 });
            }
            check("cuDeviceGet", sys::cuDeviceGet(&mut handle, ordinal as i32))?;
            check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut context, handle))?;
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(context))?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            check("cuStreamCreate", sys::cuStreamCreate(&mut stream, flags))?;
        }
        Ok(Self {
            device: describe(ordinal, handle, portable)?,
            handle,
            stream,
            kernels: Vec::new(),
            libraries: Vec::new(),
            memory: Vec::new(),
            graphs: Vec::new(),
            products: None,
            stage: None,
            kind,
            loads: 0,
            _sole: sole,
        })
    }

    fn stage(&mut self) -> &mut Stage {
        self.stage.as_mut().expect("Driver::stage comes before copies")
    }
}

/// Initializes a driver that is new enough and loads eagerly.
fn initialize() -> Result<(), DriverError> {
    let (mut version, mut mode) = (0, sys::CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING);
    // SAFETY: each call writes to a variable of the type it takes; the first one needs no initialized driver.
    unsafe {
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
        if version < LEAST_DRIVER {
            return Err(DriverError::OldDriver { takes: cuda_version(version) });
        }
        let initialized = sys::cuInit(0);
        if initialized == sys::CUresult::CUDA_ERROR_NO_DEVICE {
            return Err(no_gpu());
        }
        check("cuInit", initialized)?;
        check("cuModuleGetLoadingMode", sys::cuModuleGetLoadingMode(&mut mode))?;
    }
    match mode {
        sys::CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING => Ok(()),
        sys::CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING => Err(DriverError::Lazy),
    }
}

fn no_gpu() -> DriverError {
    let visible = std::env::var_os("CUDA_VISIBLE_DEVICES");
    DriverError::NoGpu { visible: visible.map(|value| value.to_string_lossy().into_owned()) }
}

/// (13, 0) of 13000.
fn cuda_version(version: i32) -> (u32, u32) {
    (version as u32 / 1000, version as u32 % 1000 / 10)
}

/// Asks the driver about a device. A context is current.
fn describe(ordinal: u32, handle: sys::CUdevice, portable: bool) -> Result<Device, DriverError> {
    use sys::CUdevice_attribute as Attribute;
    let attribute = |which: Attribute| {
        let mut value = 0;
        // SAFETY: writes one integer.
        check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, which, handle) })?;
        Ok::<u32, DriverError>(value as u32)
    };
    let mut name = [0u8; 128];
    let mut version = 0;
    // SAFETY: each call writes to a variable, or at most 127 bytes of the name and its NUL.
    unsafe {
        check("cuDeviceGetName", sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as i32, handle))?;
        check("cuDriverGetVersion", sys::cuDriverGetVersion(&mut version))?;
    }
    let integrated = attribute(Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0;
    let (free_bytes, total_bytes) = memory::free_and_total(integrated)?;
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(Device {
        name: String::from_utf8_lossy(&name[..length]).into_owned(),
        ordinal: format!("cuda:{ordinal}"),
        compute_capability: Some((major, minor)),
        driver_version: Some(cuda_version(version)),
        total_bytes,
        free_bytes,
        integrated,
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        portable,
    })
}

impl Driver for Cuda {
    fn device(&self) -> &Device {
        &self.device
    }

    fn load(&mut self, module: &Module<'_>) -> Result<KernelId, DriverError> {
        let code = module.entry.code.as_ref().ok_or_else(|| DriverError::Launch {
            label: module.pair.to_string(),
            reason: "has no machine code".to_owned(),
        })?;
        let entry = CString::new(code.entry.as_str()).expect("a verified entry symbol holds no NUL");
        let (mut library, mut kernel, mut function) =
            (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        let none = std::ptr::null_mut();
        // SAFETY: the image is a whole cubin whose digest and structure have been verified; the driver copies
        // it. No options are passed.
        unsafe {
            let image = module.image.as_ptr().cast::<c_void>();
            self.loads += 1;
            let loaded = sys::cuLibraryLoadData(&mut library, image, none, none.cast(), 0, none.cast(), none.cast(), 0);
            call::check_on("cuLibraryLoadData", loaded, &module.pair)?;
            self.libraries.push(library);
            let found = sys::cuLibraryGetKernel(&mut kernel, library, entry.as_ptr());
            call::check_on("cuLibraryGetKernel", found, &module.pair)?;
            call::check_on("cuKernelGetFunction", sys::cuKernelGetFunction(&mut function, kernel), &module.pair)?;
            call::check_on("cuFuncLoad", sys::cuFuncLoad(function), &module.pair)?;
        }
        self.kernels.push(function);
        Ok(KernelId(self.kernels.len() - 1))
    }

    fn loads(&self) -> u64 {
        self.loads
    }

    fn set_cublas(&mut self, cublas: Cublas) -> Result<(), DriverError> {
        let free_before = self.free_bytes()?;
        let mut products = Products::new(&cublas)?;
        products.taken_bytes = free_before.saturating_sub(self.free_bytes()?);
        self.products = Some(products);
        Ok(())
    }

    fn cublas(&self) -> Option<CublasUse> {
        self.products
            .as_ref()
            .map(|products| CublasUse { version: products.version, taken_bytes: products.taken_bytes })
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64, DriverError> {
        let (result, address) = self.kind.unwrap_or(memory::Kind::Device).allocate(bytes);
        if result == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            return Err(DriverError::OutOfMemory { asked: bytes, free: self.free_bytes()? });
        }
        check("cuMemAlloc", result)?;
        self.memory.push(address);
        Ok(address)
    }

    fn free_bytes(&self) -> Result<u64, DriverError> {
        Ok(memory::free_and_total(self.device.integrated)?.0)
    }

    fn memory_note(&self) -> Option<String> {
        self.kind.map(memory::Kind::note)
    }

    fn stage(&mut self, bytes: u64) -> Result<(), DriverError> {
        self.stage = Some(Stage::new(bytes as usize)?);
        Ok(())
    }

    fn prepare(&mut self, nodes: &[Bound]) -> Result<GraphId, DriverError> {
        let free_before = self.free_bytes()?;
        let mut graph = Graph::new()?;
        for node in nodes {
            match &node.work {
                BoundWork::Launch(launch) => graph.launch(node, self.kernels[launch.kernel.0], launch)?,
                BoundWork::Product(product) => {
                    let products = self.products.as_mut().expect("Driver::set_cublas comes before products");
                    products.prepare(&mut graph, self.stream, node, product)?;
                }
            }
        }
        let taken_bytes = free_before.saturating_sub(self.free_bytes()?);
        self.products.iter_mut().for_each(|products| products.taken_bytes += taken_bytes);
        self.graphs.push(graph.instantiate(self.stream)?);
        Ok(GraphId(self.graphs.len() - 1))
    }

    fn run(&mut self, graph: GraphId) -> Result<(), DriverError> {
        // SAFETY: the executable was instantiated by `prepare` and the memory its nodes use lives as long.
        check("cuGraphLaunch", unsafe { sys::cuGraphLaunch(self.graphs[graph.0], self.stream) })
    }

    fn time(&mut self, graph: GraphId, repeats: u32) -> Result<f64, DriverError> {
        let timer = Timer::new()?;
        // The device is busy with the first run while the host asks for the others, so that none waits for it.
        self.run(graph)?;
        timer.start(self.stream)?;
        (0..repeats).try_for_each(|_| self.run(graph))?;
        Ok(timer.stop(self.stream)? / f64::from(repeats))
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DriverError> {
        let stream = self.stream;
        self.stage().write(stream, address, bytes)
    }

    fn read(&mut self, address: u64, bytes: u64) -> Result<Ticket, DriverError> {
        let stream = self.stream;
        self.stage().read(stream, address, bytes as usize).map(Ticket)
    }

    fn wait(&mut self, ticket: Ticket) -> Result<Arrived, DriverError> {
        self.stage().wait(ticket.0)
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // Errors are of no use here: a context that failed is torn down with the process.
        // SAFETY: every handle was made by this value and is not used again; the stream is idle first.
        unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            for graph in self.graphs.drain(..) {
                let _ = sys::cuGraphExecDestroy(graph);
            }
            self.products = None;
            self.stage = None;
            for address in self.memory.drain(..) {
                let _ = sys::cuMemFree_v2(address);
            }
            for library in self.libraries.drain(..) {
                let _ = sys::cuLibraryUnload(library);
            }
            let _ = sys::cuStreamDestroy_v2(self.stream);
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.handle);
        }
    }
}
