//! The failure this project exists for: on GB10, a module load while kernels run fails with 300 and poisons
//! the context; every call after it fails with 700.
//!
//! Reproduced on the simulated GPU, under a stand-in for `libcuda` on any machine, and under a shim around
//! the real one on a GPU. A loader that loads on first use dies under each; Precast runs under each.

use std::cell::RefCell;
use std::rc::Rc;

use precast::base::startup_times::Startup;
use precast::device::run_models::RunModels;
use precast::device::session::Session;
use precast_fatbins::{Bundle, Manifest, Module};
use precast_kernels::{Arch, KERNELS, KeyVariant, check::Case as KernelCase};
use precast_runtime::cuda::Cuda;
use precast_runtime::selftest::selftest;
use precast_runtime::sim::{Faults, Sim};
use precast_runtime::{
    Bound, BoundLaunch, BoundWork, Driver, DriverError, GraphId, KernelId, Launches, Permit, Placement, STAGE_BYTES,
};

use crate::support;
use crate::support::prelude::*;
use crate::support::{Tap, Tapped};

const POISONING: Faults = Faults { poison_on_late_load: true, memory_bytes: None, fail_launch: None };

/// What happened to the second kernel's load, and to the first kernel's next launch.
type Outcome = [Result<(), DriverError>; 2];

/// Launches each kernel as soon as it is loaded, as the defective trainers do, and so loads the second beside work.
/// It misuses the permit that it is lent.
struct FirstUse {
    /// Of the first kernel.
    launched: Option<GraphId>,
    outcome: Rc<RefCell<Option<Outcome>>>,
}

impl FirstUse {
    /// Launches a kernel on its first sample.
    fn launch(on: &mut dyn Driver, kernel: KernelId, KeyVariant { key, variant }: &KeyVariant) -> GraphId {
        let samples = key.kernel().samples();
        let params = samples.iter().find(|params| key.kernel().admits(*variant, params)).unwrap();
        let case = KernelCase::new(key, params, 1);
        let mut bound = params.clone();
        on.stage(STAGE_BYTES).unwrap();
        for (operand, before) in case.operands.iter().zip(&case.before) {
            let address = on.allocate(operand.bytes()).unwrap();
            on.write(address, before).unwrap();
            bound[operand.offset..operand.offset + 8].copy_from_slice(&address.to_ne_bytes());
        }
        let launch = BoundLaunch {
            kernel,
            key: key.clone(),
            geometry: key.kernel().geometry(*variant, params),
            tensor_maps: key.kernel().tensor_maps(*variant, &bound),
            params: bound,
        };
        let bound = Bound { label: "first".into(), work: BoundWork::Launch(launch), dependencies: Vec::new() };
        let graph = on.prepare(&[bound]).unwrap();
        on.run(graph).unwrap();
        graph
    }
}

impl Tap for FirstUse {
    fn load(&mut self, on: &mut dyn Driver, module: &Module<'_>, permit: &Permit) -> Result<KernelId, DriverError> {
        let loaded = on.load(module, permit);
        match self.launched {
            None => self.launched = Some(Self::launch(on, loaded.clone().unwrap(), &module.pair)),
            Some(first) => {
                let launched = on.run(first);
                *self.outcome.borrow_mut() = Some([loaded.clone().map(|_| ()), launched]);
            }
        }
        loaded
    }
}

fn load_on_first_use(driver: impl Driver + 'static, bundle: &Bundle<'_>) -> Outcome {
    let outcome = Rc::default();
    let driver = Tapped(Box::new(driver), FirstUse { launched: None, outcome: Rc::clone(&outcome) });
    let ended = selftest(Box::new(driver), bundle, "", 1, |_| ());
    let outcome = outcome.take().expect("it loads two kernels");
    assert_eq!(ended.is_ok(), outcome[0].is_ok());
    outcome
}

fn assert_poisoned([load, launch]: Outcome) {
    assert!(matches!(&load, Err(DriverError::Call { code: 300, .. })), "the late load: {load:?}");
    assert!(matches!(&launch, Err(DriverError::Call { code: 700, .. })), "the launch after it: {launch:?}");
}

#[test]
fn loading_on_first_use_dies_on_the_simulated_gpu() {
    let pairs = ["fill{first=false}", "cast{from=f32,to=bf16}"].map(|text| {
        let key = KERNELS.parse(text).unwrap();
        let variant = key.kernel().variants(Arch::Sim)[0];
        KeyVariant { key, variant }
    });
    let manifest = Manifest::simulated(&KERNELS, &pairs).encode();
    let bundle = Bundle::from_parts(&manifest, &[], &KERNELS).unwrap();
    assert_poisoned(load_on_first_use(Sim::new(POISONING), &bundle));
    // Without the fault the same program gets away with it: that is how it came to be written.
    let [load, launch] = load_on_first_use(Sim::new(Faults::default()), &bundle);
    assert!(load.is_ok() && launch.is_ok());
}

#[test]
fn a_sealed_run_never_meets_the_fault() {
    let dir = tempfile::tempdir().unwrap();
    let student = random_model(dir.path(), "student", 1, &tiny_config(&[]));
    let config = config(&student, &student, |options| {
        options.target.device = precast::options::DeviceChoice::Sim;
        options.target.kernels.bundle = None;
    });
    let mut session = session_on(Box::new(Sim::new(POISONING)), &config, Placement::Arena);
    let rows: [&[u32]; 2] = [&[1; 17], &[2; 17]];
    for step in 0..3 {
        session.micro(&precast::inputs::data::MicroBatch::new(&rows, 16), 1.0 / 32.0, 0).unwrap();
        let ticket = session.update(step, 1e-3).unwrap();
        assert!(session.metrics(ticket).unwrap().0.ce_loss > 0.0);
    }
}

#[test]
fn other_faults_are_errors_too() {
    let dir = tempfile::tempdir().unwrap();
    let student = random_model(dir.path(), "student", 1, &tiny_config(&[]));
    let config = config(&student, &student, |options| options.target.kernels.bundle = None);
    let models = RunModels::open(&config).unwrap();
    let open = |faults| -> Result<Session, precast::Failure> {
        let driver: Box<dyn Driver> = Box::new(Sim::new(faults));
        Ok(Session::open(driver, &models, &config, Placement::Arena, &mut Startup::default(), |_| ())?.0)
    };
    // Too little memory is known before anything is taken, with the table that says what for.
    let Err(failure) = open(Faults { memory_bytes: Some(1000), ..Faults::default() }) else {
        panic!("a run in 1000 bytes")
    };
    assert_eq!(failure.exit_code(), 4);
    assert!(failure.to_string().contains("has 1000 bytes free") && failure.to_string().contains("activations"));
    let mut session = open(Faults { fail_launch: Some(2), ..Faults::default() }).unwrap();
    let failure = precast::Failure::from(session.upload(&models, |_| Ok(())).unwrap_err());
    assert_eq!(failure.exit_code(), 4);
    assert!(failure.to_string().contains("CUDA_ERROR_LAUNCH_FAILED"), "{failure}");
}

/// A sealed run and a loader on first use, each in a process of its own under a libcuda that poisons.
fn under_a_poisoning_driver(kind: &str) {
    let case = Case::new(17 * 4);
    let log = case.path("log");
    // Kernels for the architecture that the libcuda has, and the variables that put it in place.
    let (bundle, variables) = if kind == "shim" {
        let shim = support::build_shim(case.dir.path());
        let bundle = bundle().expect("PRECAST_TEST_BUNDLE names kernels for this GPU");
        (bundle, [("LD_PRELOAD", shim), ("PRECAST_SHIM_LOG", log.clone())])
    } else {
        let library = support::build_libcuda(case.dir.path());
        case.aot("build --arch sm_121 --out sm_121.bundle --model student").succeeds();
        let path = format!("{}:{}", library.parent().unwrap().display(), support::library_path());
        (case.path("sm_121.bundle"), [("LD_LIBRARY_PATH", path.into()), ("PRECAST_LIBCUDA_LOG", log.clone())])
    };
    // Seen from outside the program: every load before the first launch.
    let assert_sealed = || {
        let calls = fs::read_to_string(&log).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        let first_launch = calls.iter().position(|call| *call == "launch").expect("graphs are launched");
        let loads = calls.iter().filter(|call| **call == "load").count();
        assert!(loads > 10, "{loads} loads");
        assert_eq!(calls[first_launch..].iter().filter(|call| **call == "load").count(), 0);
        assert_eq!(calls.iter().filter(|call| **call == "poison").count(), 0);
        fs::remove_file(&log).unwrap();
    };

    let run = |line: &str| {
        let mut command = case.run([line, "--device cuda:0 --steps 3 --batch-size 2 --seq-len 16 --bundle"]);
        command.arg(&bundle).envs(variables.clone());
        command
    };
    let pair = "--teacher student --student student";
    let files = "--data data.bin --out out --allow-identical --precision bf16 --checkpoint-every 0";
    run(&format!("distill {pair} {files}")).succeeds();
    assert_eq!(case.metrics("out").len(), 3);
    assert_sealed();
    run(&format!("bench step {pair}")).prints("% of floor");
    assert_sealed();

    let mut lazy = Command::new(std::env::current_exe().unwrap());
    lazy.with("poison::lazy_child --exact --ignored --nocapture").env("PRECAST_LAZY_BUNDLE", &bundle);
    lazy.envs(variables.clone()).prints("the loader on first use is dead");
}

#[test]
#[ignore = "the process that loads on first use: under_a_poisoning_driver starts it"]
fn lazy_child() {
    let bundle = std::env::var_os("PRECAST_LAZY_BUNDLE").expect("the parent names a bundle");
    let bytes = fs::read(bundle).unwrap();
    let bundle = Bundle::read(&bytes, &KERNELS).unwrap();
    assert_poisoned(load_on_first_use(Cuda::open(0, Launches::Own, &bundle.archs(), &KERNELS).unwrap(), &bundle));
    println!("the loader on first use is dead");
}

#[test]
fn under_a_stand_in_for_gb10() {
    let has_device = std::env::var_os("PRECAST_TEST_DEVICE").is_some();
    if !skipped(has_device, "the device under test stands for itself") {
        under_a_poisoning_driver("fake");
    }
}

#[test]
fn under_a_shim_around_the_real_driver() {
    if !skipped(is_sim(), "PRECAST_TEST_DEVICE names no GPU") {
        under_a_poisoning_driver("shim");
    }
}
