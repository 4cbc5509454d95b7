//! The failure this project exists for: on GB10, a module load while kernels run fails with 300 and poisons
//! the context; every call after it fails with 700.
//!
//! Reproduced on the simulated GPU, under a stand-in for `libcuda` on any machine, and under a shim around
//! the real one on a GPU. A loader that loads on first use dies under each; Precast runs under each.

use std::path::{Path, PathBuf};
use std::process::Command;

use precast::base::startup_times::Startup;
use precast::device::run_models::RunModels;
use precast::device::session::Session;
use precast_fatbins::{Bundle, Manifest};
use precast_kernels::check::Case;
use precast_kernels::{Arch, Key, KeyVariant};
use precast_runtime::Launches;
use precast_runtime::cuda::Cuda;
use precast_runtime::sim::{Faults, Sim};
use precast_runtime::{Bound, BoundLaunch, BoundWork, Driver, DriverError, Placement};

use crate::support::{self, config, metrics_of, random_model, tiny_config, token_file};

const POISONING: Faults = Faults { poison_on_late_load: true, memory_bytes: None, fail_launch: None };

/// What the defective trainers do: load a kernel when it is first launched. Returns what happened to the
/// second kernel's load, and to the first kernel's next launch.
fn load_on_first_use<D: Driver>(mut driver: D, bundle: &Bundle<'_>) -> [Result<(), DriverError>; 2] {
    let arch = driver.device().arch().unwrap();
    let modules = bundle.modules(arch).unwrap();
    let of = |op: &str| modules.iter().find(|module| module.pair.key.op() == op).unwrap();
    let (first, second) = (of("fill"), of("cast"));
    let params = &first.pair.key.kernel().samples()[0];
    let case = Case::new(&first.pair.key, params, 1);
    let memory = driver.allocate(1 << 20).unwrap();
    driver.stage(1 << 20).unwrap();
    let kernel = driver.load(first).unwrap();
    let mut bound = params.clone();
    for (index, operand) in case.operands.iter().enumerate() {
        let address = memory + index as u64 * 65_536;
        bound[operand.offset..operand.offset + 8].copy_from_slice(&address.to_ne_bytes());
    }
    let launch = Bound {
        label: "first".into(),
        work: BoundWork::Launch(BoundLaunch {
            kernel,
            key: first.pair.key.clone(),
            geometry: first.pair.key.kernel().geometry(first.pair.variant, params),
            params: bound,
            tensor_maps: Vec::new(),
        }),
        dependencies: Vec::new(),
    };
    let graph = driver.prepare(&[launch]).unwrap();
    driver.run(graph).unwrap();
    let second = driver.load(second).map(|_| ());
    [second, driver.run(graph)]
}

fn assert_poisoned([load, launch]: [Result<(), DriverError>; 2]) {
    assert!(matches!(&load, Err(DriverError::Call { code: 300, .. })), "the late load: {load:?}");
    assert!(matches!(&launch, Err(DriverError::Call { code: 700, .. })), "the launch after it: {launch:?}");
}

#[test]
fn loading_on_first_use_dies_on_the_simulated_gpu() {
    let pairs = ["fill{first=false}", "cast{from=f32,to=bf16}"].map(|text| {
        let key = Key::parse(text).unwrap();
        let variant = key.kernel().variants(Arch::Sim)[0];
        KeyVariant { key, variant }
    });
    let manifest = Manifest::simulated(&pairs).encode();
    let bundle = Bundle::from_parts(&manifest, &[]).unwrap();
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
    let mut session = support::session_on(Box::new(Sim::new(POISONING)), &config, Placement::Arena);
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
    assert!(failure.to_string().contains("has 1000 free") && failure.to_string().contains("activations"));
    let mut session = open(Faults { fail_launch: Some(2), ..Faults::default() }).unwrap();
    let failure = precast::Failure::from(session.upload(&models, |_| Ok(())).unwrap_err());
    assert_eq!(failure.exit_code(), 4);
    assert!(failure.to_string().contains("CUDA_ERROR_LAUNCH_FAILED"), "{failure}");
}

/// Kernels for the architecture that a kind of libcuda has.
fn bundle_for(kind: &str, dir: &Path, models: &[&Path]) -> PathBuf {
    if kind == "shim" {
        return support::bundle().expect("PRECAST_TEST_BUNDLE names kernels for this GPU");
    }
    let bundle = dir.join("sm_121.bundle");
    let mut command = support::precast_aot();
    command.args(["build", "--arch", "sm_121", "--out"]).arg(&bundle);
    models.iter().for_each(|model| {
        command.arg("--model").arg(model);
    });
    support::succeed(&mut command);
    bundle
}

/// A sealed run and a loader on first use, each in a process of its own under a libcuda that poisons.
fn under_a_poisoning_driver(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let student = random_model(dir.path(), "student", 1, &tiny_config(&[]));
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    let library = if kind == "shim" { support::build_shim(dir.path()) } else { support::build_libcuda(dir.path()) };
    let bundle = bundle_for(kind, dir.path(), &[&student]);
    let log = dir.path().join("log");
    let under = |command: &mut Command| {
        if kind == "shim" {
            command.env("LD_PRELOAD", &library).env("PRECAST_SHIM_LOG", &log);
            return;
        }
        let path = format!("{}:{}", library.parent().unwrap().display(), support::library_path());
        command.env("LD_LIBRARY_PATH", path).env("PRECAST_LIBCUDA_LOG", &log);
    };
    // Seen from outside the program: every load before the first launch.
    let assert_sealed = || {
        let calls = std::fs::read_to_string(&log).unwrap();
        let calls: Vec<&str> = calls.lines().collect();
        let first_launch = calls.iter().position(|call| *call == "launch").expect("graphs are launched");
        let loads = calls.iter().filter(|call| **call == "load").count();
        assert!(loads > 10, "{loads} loads");
        assert_eq!(calls[first_launch..].iter().filter(|call| **call == "load").count(), 0);
        assert_eq!(calls.iter().filter(|call| **call == "poison").count(), 0);
        std::fs::remove_file(&log).unwrap();
    };

    let out = dir.path().join("out");
    let mut run = support::precast();
    run.args(["distill", "--device", "cuda:0", "--steps", "3", "--batch-size", "2", "--seq-len", "16"]);
    run.args(["--allow-identical", "--precision", "bf16", "--checkpoint-every", "0", "--teacher"]).arg(&student);
    run.arg("--student").arg(&student).arg("--data").arg(&data).arg("--out").arg(&out);
    run.arg("--bundle").arg(&bundle);
    under(&mut run);
    support::succeed(&mut run);
    assert_eq!(metrics_of(&out).len(), 3);
    assert_sealed();

    let mut bench = support::precast();
    bench.args(["bench", "--device", "cuda:0", "--steps", "3", "--batch-size", "2", "--seq-len", "16", "--teacher"]);
    bench.arg(&student).arg("--student").arg(&student).arg("--bundle").arg(&bundle);
    under(&mut bench);
    let printed = support::succeed(&mut bench);
    assert!(printed.contains("% of floor"), "{printed}");
    assert_sealed();

    let mut lazy = Command::new(std::env::current_exe().unwrap());
    lazy.args(["poison::lazy_child", "--exact", "--ignored", "--nocapture"]).env("PRECAST_LAZY_BUNDLE", &bundle);
    under(&mut lazy);
    let output = support::succeed(&mut lazy);
    assert!(output.contains("the loader on first use is dead"), "{output}");
}

#[test]
#[ignore = "the process that loads on first use: under_a_poisoning_driver starts it"]
fn lazy_child() {
    let bundle = std::env::var_os("PRECAST_LAZY_BUNDLE").expect("the parent names a bundle");
    let bytes = std::fs::read(bundle).unwrap();
    let bundle = Bundle::read(&bytes).unwrap();
    assert_poisoned(load_on_first_use(Cuda::open(0, Launches::Own, &[]).unwrap(), &bundle));
    println!("the loader on first use is dead");
}

#[test]
fn under_a_stand_in_for_gb10() {
    let has_device = std::env::var_os("PRECAST_TEST_DEVICE").is_some();
    if !support::skipped(has_device, "the device under test stands for itself") {
        under_a_poisoning_driver("fake");
    }
}

#[test]
fn under_a_shim_around_the_real_driver() {
    if !support::skipped(support::is_sim(), "PRECAST_TEST_DEVICE names no GPU") {
        under_a_poisoning_driver("shim");
    }
}
