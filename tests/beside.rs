//! Kernels of a bundle beside cudarc: on its streams and buffers, under a stand-in for `libcuda` whose kernels are
//! their host references. A process loads before it launches, so each test is one.

use std::sync::{Arc, LazyLock};
use std::thread;

use precast_fatbins::{Bundle, BundleFile};
use precast_kernels::abi::{Add, AddArgs, Cast, CastArgs, Fill, FillArgs};
use precast_kernels::{Dtype, KERNELS, Key};
use precast_runtime::cuda::Cuda;
use precast_runtime::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};
use precast_runtime::cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use precast_runtime::{Coverage, DriverError, Launches, LoadError, Modules};

use crate::driver::machine;
use crate::support::prelude::*;

const FILL: Fill = Fill { first: false };
const TO_BF16: Cast = Cast { from: Dtype::F32, to: Dtype::Bf16 };

fn keys() -> Vec<Key> {
    vec![Key::new(FILL), Key::new(TO_BF16)]
}

/// A process of an ignored test of this file, with the path of a bundle of the keys.
fn process(name: &str) -> Command {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let bundle = Path::new(env!("CARGO_TARGET_TMPDIR")).join("beside.bundle");
        let mut build = precast_aot();
        build.with("build --arch sm_121 --key fill --key cast --out").arg(&bundle).current_dir(root()).succeeds();
        bundle
    });
    let bundle = crate::support::bundle().unwrap_or_else(|| BUILT.clone());
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.with(["beside::", name].concat()).with("--exact --ignored --nocapture").env("PRECAST_BESIDE_BUNDLE", bundle);
    child
}

fn read_bundle() -> Bundle<'static> {
    let path = std::env::var_os("PRECAST_BESIDE_BUNDLE").expect("the parent names a bundle");
    Box::leak(Box::new(BundleFile::read(path.as_ref()).unwrap())).open(&[], &KERNELS).unwrap()
}

/// The bundle, with the stand-in in place of the driver where no GPU is under test.
fn bundle() -> Bundle<'static> {
    let bundle = read_bundle();
    if is_sim() {
        precast_libcuda::install(&bundle);
    }
    bundle
}

fn fill(modules: &Modules, stream: &CudaStream, y: &mut CudaSlice<f32>, value: f32) -> Result<(), DriverError> {
    let n = y.len() as u64;
    let (y, _y) = y.device_ptr_mut(stream);
    // SAFETY: it is a buffer of n elements.
    unsafe { modules.launch(stream, FILL, FillArgs { y, micro: None, n, value }) }
}

fn to_bf16(
    modules: &Modules,
    stream: &CudaStream,
    x: &CudaSlice<f32>,
    y: &mut CudaSlice<u16>,
) -> Result<(), DriverError> {
    let n = x.len() as u64;
    let ((x, _x), (y, _y)) = (x.device_ptr(stream), y.device_ptr_mut(stream));
    // SAFETY: they are two buffers of n elements.
    unsafe { modules.launch(stream, TO_BF16, CastArgs { x, y, n }) }
}

/// 1.5 in bf16.
const HALF_MORE: u16 = 0x3fc0;

fn refused<T: std::fmt::Debug>(loaded: Result<T, LoadError>) -> DriverError {
    match loaded {
        Err(LoadError::Driver(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bundle_runs_on_the_streams_of_cudarc() {
    skip_if!(is_on_gpu() || lacks_compiler());
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    process("runs_child").env("PRECAST_LIBCUDA_LOG", &log).env("PRECAST_FAKE_GPUS", "2").prints("1 passed");
    let log = fs::read_to_string(log).unwrap();
    let calls: Vec<&str> = log.lines().collect();
    // It waits for the context, loads, and nothing is loaded after a launch.
    let first = |call| calls.iter().position(|each| *each == call).unwrap();
    let (wait, load, launch) = (first("wait"), first("load"), first("launch"));
    assert!(wait < load && load < launch && !calls[launch..].contains(&"load"), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| **call == "load").count(), 5, "{calls:?}");
}

#[test]
#[ignore = "a process of a_bundle_runs_on_the_streams_of_cudarc"]
fn runs_child() {
    let bundle = bundle();
    let context = CudaContext::new(0).unwrap();
    let modules = Modules::load(Arc::clone(&context), &bundle, &keys()).unwrap();
    assert_eq!(modules.loaded().len(), bundle.cubins().count());
    assert_eq!(modules.device().compute_capability, Some((12, 1)));
    // On a stream of each of two threads, and on the default stream.
    let own = |stream: &Arc<CudaStream>| {
        let (mut x, mut y) = (stream.alloc_zeros(50).unwrap(), stream.alloc_zeros(50).unwrap());
        fill(&modules, stream, &mut x, 1.5).unwrap();
        to_bf16(&modules, stream, &x, &mut y).unwrap();
        assert_eq!(stream.clone_dtoh(&y).unwrap(), [HALF_MORE; 50]);
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| own(&context.new_stream().unwrap()));
        }
    });
    own(&context.default_stream());
    // Captured, and launched with what the graph holds.
    let stream = context.new_stream().unwrap();
    let mut y = stream.clone_htod(&[0.0f32; 8]).unwrap();
    context.synchronize().unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    {
        let (y, _y) = y.device_ptr_mut(&stream);
        // SAFETY: it is a buffer of 8 elements.
        unsafe { modules.launch(&stream, FILL, FillArgs { y, micro: None, n: 8, value: 2.5 }).unwrap() };
    }
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [0.0; 8]);
    graph.launch().unwrap();
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [2.5; 8]);
    // What a launch must not be given.
    let reason = |launched: Result<(), DriverError>| match launched {
        Err(DriverError::Launch { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    // SAFETY: nothing is launched.
    let askew = unsafe { modules.launch(&stream, FILL, FillArgs { y: 8u64, micro: None, n: 8, value: 0.0 }) };
    assert!(reason(askew).contains("operand `y` at 0x8 is not aligned to 16 bytes"));
    // SAFETY: nothing is launched.
    let missing = unsafe { modules.launch(&stream, Add {}, AddArgs { x: 0u64, y: 0, n: 8 }) };
    assert!(reason(missing).contains("is not in the bundle"));
    let elsewhere = CudaContext::new(1).unwrap().default_stream();
    // SAFETY: nothing is launched.
    let astray = unsafe { modules.launch(&elsewhere, FILL, FillArgs { y: 0u64, micro: None, n: 8, value: 0.0 }) };
    assert!(reason(astray).contains("another context"));
}

/// Also on a GPU, whose driver says itself what a capture forbids.
#[test]
fn a_process_loads_before_its_first_launch_and_beside_nothing() {
    skip_if!(is_sim() && lacks_compiler());
    process("loads_child").env("PRECAST_FAKE_GPUS", "2").prints("1 passed");
}

#[test]
#[ignore = "a process of a_process_loads_before_its_first_launch_and_beside_nothing"]
fn loads_child() {
    let bundle = bundle();
    let open_cuda = || Cuda::open(0, Launches::Own, &bundle.archs(), &KERNELS);
    let cuda = open_cuda().unwrap();
    assert_eq!(refused(Modules::open(0, &bundle, &keys())), DriverError::InUse);
    drop(cuda);

    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    assert_eq!(refused(Modules::load(Arc::clone(&context), &bundle, &keys())), DriverError::Capturing);
    // As the message says.
    assert_eq!(stream.capture_status().unwrap(), CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert!(stream.end_capture(CUgraphInstantiate_flags(0)).is_err());

    // A module is loaded into every context; a machine with one GPU has no other.
    if let Ok(other) = CudaContext::new(1) {
        assert_eq!(
            refused(Modules::load(Arc::clone(&context), &bundle, &keys())),
            DriverError::OtherContext { ordinal: 1 }
        );
        drop(other);
    }

    // No model is so wide.
    let wide = KERNELS.parse("rmsnorm.fwd{h=24,residual=false,x=bf16}").unwrap();
    let with_more: Vec<Key> = keys().into_iter().chain([wide.clone()]).collect();
    match Modules::load(Arc::clone(&context), &bundle, &with_more) {
        Err(LoadError::Missing(Coverage { missing, .. })) => assert!(missing.iter().all(|pair| pair.key == wide)),
        other => panic!("{other:?}"),
    }

    // What was refused loaded nothing, and hinders nothing.
    let modules = Modules::open(0, &bundle, &keys()).unwrap();
    assert_eq!(modules.context().cu_ctx(), context.cu_ctx());
    assert_eq!(open_cuda().err(), Some(DriverError::Loaded));
    // A library's bundle and its user's: each has its modules, and only they do.
    let others = Modules::load(Arc::clone(&context), &bundle, &keys()).unwrap();
    assert_eq!(others.loaded().len(), modules.loaded().len());
    let stream = context.new_stream().unwrap();
    let mut y = stream.alloc_zeros(8).unwrap();
    for (modules, value) in [(&modules, 1.5), (&others, 2.5), (&modules, 3.5)] {
        fill(modules, &stream, &mut y, value).unwrap();
        assert_eq!(stream.clone_dtoh(&y).unwrap(), [value; 8]);
    }
    // After a launch nothing is loaded, also where all modules have been dropped.
    assert_eq!(refused(Modules::open(0, &bundle, &keys())), DriverError::Launched);
    drop((modules, others));
    assert_eq!(refused(Modules::open(0, &bundle, &keys())), DriverError::Launched);
    assert_eq!(open_cuda().err(), Some(DriverError::Launched));
}

#[test]
fn what_cannot_be_used_beside_cudarc_is_said_by_name() {
    skip_if!(has_driver() || lacks_compiler());
    for (variable, said) in [
        (("PRECAST_FAKE_DRIVER", "12080"), "the NVIDIA driver is too old"),
        (("PRECAST_FAKE_GPUS", "0"), "the NVIDIA driver sees no GPU"),
        (("PRECAST_FAKE_LAZY", "1"), "loads kernels lazily"),
        (("PRECAST_FAKE_CAPABILITY", "8.7"), "no build of Precast has kernels for NVIDIA GB10"),
        (("PRECAST_FAKE_CAPABILITY", "9.0"), "the bundle has no code for NVIDIA GB10"),
        (("CUDA_FORCE_JIT", "1"), "CUDA_FORCE_JIT=1 is set"),
    ] {
        machine(&[variable]).run(&mut process("fails_child")).prints(said);
    }
}

#[test]
#[ignore = "a process of what_cannot_be_used_beside_cudarc_is_said_by_name"]
fn fails_child() {
    println!("{}", Modules::open(0, &read_bundle(), &keys()).unwrap_err());
}
