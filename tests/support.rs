//! What the tests share: programs, fixtures, tiny models, sessions.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use precast::base::startup_times::Startup;
use precast::device::run_models::RunModels;
use precast::device::session::Session;
use precast::inputs::adapter::{Adapter, extent, gathered};
use precast::inputs::checkpoint::{Checkpoint, Scratch, Weights};
use precast::options::Kernels;
use precast::options::{ModelOptions, Options, RunConfig};
use precast::run::metrics::Metrics;
use precast::run::step::StepRecord;
use precast_kernels::Dtype;
use precast_plan::{AdapterParameter, Adapters, EvaluationPlan, Formats, Gemm, Precision, Student, evaluation, rope};
use precast_runtime::{Driver, Loading, Placement};
use precast_system::files::Existing;

/// The checkout: where cargo runs tests, and where a person runs carried ones.
pub fn root() -> PathBuf {
    std::env::current_dir().expect("there is a current directory")
}

pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// The device under test.
pub fn device() -> String {
    std::env::var("PRECAST_TEST_DEVICE").unwrap_or_else(|_| "sim".to_owned())
}

/// Kernels for the device under test.
pub fn bundle() -> Option<PathBuf> {
    std::env::var_os("PRECAST_TEST_BUNDLE").map(PathBuf::from)
}

/// What a program says on standard error, but for a note of kernels that are given as a file: who runs the tests trusts it.
pub fn without_trust(stderr: &str) -> String {
    let others = stderr.lines().filter(|line| !line.contains(": no trusted key is configured, "));
    others.flat_map(|line| [line, "\n"]).collect()
}

/// Who computes GEMMs in the tests: the bundle's kernels, unless PRECAST_TEST_GEMM says cublas.
pub fn gemm() -> Gemm {
    std::env::var("PRECAST_TEST_GEMM")
        .map_or(Gemm::Bundle, |name| name.parse().expect("PRECAST_TEST_GEMM names a gemm"))
}

pub fn is_sim() -> bool {
    device() == "sim"
}

/// The `precast` program.
pub fn precast() -> Command {
    let mut command = Command::new(program());
    command.envs(NO_PROGRESS);
    command
}

fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_precast"));
    std::env::var_os("PRECAST_BIN").map_or(built, PathBuf::from)
}

/// The `precast-aot` program, built beside the other.
pub fn precast_aot() -> Command {
    let path = program().with_file_name("precast-aot");
    assert!(path.exists(), "{} is not built: run the tests with `cargo xtask test`", path.display());
    let mut command = Command::new(path);
    command.envs(NO_PROGRESS);
    command
}

/// A slow machine adds no line of progress to what tests read.
const NO_PROGRESS: [(&str, &str); 1] = [("PRECAST_PROGRESS_S", "86400")];

/// Whether a test shows nothing here; the terminal says so. The output of a test that passes is captured, this is not.
#[track_caller]
pub fn skipped(shows_nothing: bool, because: &str) -> bool {
    if shows_nothing {
        let at = std::panic::Location::caller();
        let _ = writeln!(std::io::stderr(), "skipped: {}:{}: {because}", at.file(), at.line());
    }
    shows_nothing
}

/// Whether this machine only runs the tests: compiling kernels needs `precast-aot` and the toolchain.
#[track_caller]
pub fn lacks_compiler() -> bool {
    skipped(std::env::var_os("PRECAST_BIN").is_some(), "this machine has programs and no compiler")
}

/// Whether a driver of the test's own would stand beside a real one.
#[track_caller]
pub fn has_driver() -> bool {
    let has = !is_sim() || precast_runtime::cuda::is_present();
    skipped(has, "it brings a driver of its own, and this machine has one")
}

/// SmolLM2-135M-Instruct as a GGUF file.
#[track_caller]
pub fn smollm2() -> Option<PathBuf> {
    let model = std::env::var_os("PRECAST_TEST_SMOLLM2").map(PathBuf::from);
    skipped(model.is_none(), "PRECAST_TEST_SMOLLM2 names no model; `cargo xtask test` fetches it");
    model
}

/// The command, whose program heeds the signals that whoever started the tests ignores.
pub fn heeding(command: &Command) -> Command {
    let mut heeding = Command::new("env");
    heeding.arg("--default-signal=HUP,INT,QUIT,TERM").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => heeding.env(name, value),
            None => heeding.env_remove(name),
        };
    }
    heeding
}

/// Runs a program that must succeed and returns what it prints.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

/// Runs a program that must fail with an exit code and returns its error message.
pub fn fail(command: &mut Command, exit_code: i32) -> String {
    let output = command.output().expect("the program starts");
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(exit_code), "{command:?}\n{stdout}\n{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    // Notes may come first, and a heading.
    let error = stderr.lines().find(|line| !is_note(line) && !is_heading(line));
    assert!(error.is_some_and(|line| line.starts_with("error: ")), "{stderr}");
    stderr
}

/// True for a line that ends nothing: it may come before an error.
pub fn is_note(line: &str) -> bool {
    line.starts_with("note: ") || line.starts_with("warning: ")
}

/// True for a line of the heading that `eval` and `generate` begin with.
fn is_heading(line: &str) -> bool {
    const NAMES: [&str; 6] = ["device", "arch", "bundle", "GEMMs", "model", "adapter"];
    line.is_empty() || NAMES.iter().any(|name| line.starts_with(&format!("{name:<8} ")))
}

/// What a program wrote to standard output and standard error.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A model's shape as `config.json`, small enough for any test: `tests/models/tiny.json`, changed.
pub fn tiny_config(changes: &[(&str, serde_json::Value)]) -> serde_json::Value {
    let mut config = model_config("tiny");
    for (name, value) in changes {
        config[*name] = value.clone();
    }
    config
}

/// A model's shape in `tests/models`: kernels for all of them are packed for machines with a GPU.
pub fn model_config(name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(root().join(format!("tests/models/{name}.json"))).expect("tests/models");
    serde_json::from_str(&text).expect("a configuration is JSON")
}

/// Writes a model of random weights below `dir`.
pub fn random_model(dir: &Path, name: &str, seed: u64, config: &serde_json::Value) -> PathBuf {
    let json = dir.join(format!("{name}.json"));
    std::fs::write(&json, config.to_string()).expect("a scratch directory is writable");
    let out = dir.join(name);
    precast::programs::init::random(&json, None, seed, Precision::Fp32, &out, Existing::Keep)
        .expect("a tiny model is written");
    out
}

/// A `tokenizer.json` of the words of a text.
pub fn tokenizer(text: &str) -> serde_json::Value {
    let mut words: Vec<&str> = text.split(' ').collect();
    words.sort_unstable();
    words.dedup();
    let vocab: serde_json::Map<String, serde_json::Value> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), id.into())).collect();
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": words[0]},
    })
}

/// Writes token ids below a vocabulary, the same for the same count.
pub fn token_file(dir: &Path, name: &str, count: u32, vocab: u32) -> PathBuf {
    let path = dir.join(name);
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % vocab
    };
    let bytes: Vec<u8> = (0..count).flat_map(|_| next().to_le_bytes()).collect();
    std::fs::write(&path, bytes).expect("a scratch directory is writable");
    path
}

/// What a run takes, in a scratch directory of its own: two tiny models with different weights, and token ids.
pub struct Case {
    pub dir: tempfile::TempDir,
    pub teacher: PathBuf,
    pub student: PathBuf,
    pub data: PathBuf,
}

impl Case {
    /// Two models of one shape, and a file of `tokens` ids.
    pub fn new(tokens: u32) -> Self {
        Self::of([&tiny_config(&[]), &tiny_config(&[])], tokens)
    }

    /// The same of a teacher's and a student's configuration, both of 96 tokens at least.
    pub fn of([teacher, student]: [&serde_json::Value; 2], tokens: u32) -> Self {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let teacher = random_model(dir.path(), "teacher", 1, teacher);
        let student = random_model(dir.path(), "student", 2, student);
        let data = token_file(dir.path(), "data.bin", tokens, 96);
        Self { dir, teacher, student, data }
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where most runs go.
    pub fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// `precast distill` of two rows of 16 tokens a step.
    pub fn distill(&self, out: &Path, arguments: &[&str]) -> Command {
        let mut command = distill(&self.teacher, &self.student, &self.data, out);
        command.args(["--batch-size", "2", "--seq-len", "16"]).args(arguments);
        command
    }

    /// A copy of the student in which one file is another.
    pub fn student_with(&self, name: &str, file: &str, bytes: &[u8]) -> PathBuf {
        let model = self.path(name);
        copy(&self.student, &model);
        std::fs::write(model.join(file), bytes).expect("a scratch directory is writable");
        model
    }
}

/// A copy of a model with a tensor of another content.
pub fn with_tensor(case: &Case, model: &Path, name: &str, tensor: &str, change: impl Fn(usize, f32) -> f32) -> PathBuf {
    let to = case.path(name);
    copy(model, &to);
    let file = to.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let whole = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let data = whole.tensor(tensor).unwrap().data();
    let (start, length) = (data.as_ptr() as usize - bytes.as_ptr() as usize, data.len());
    for (index, value) in bytes[start..start + length].chunks_exact_mut(4).enumerate() {
        let was = f32::from_le_bytes(value.try_into().unwrap());
        value.copy_from_slice(&change(index, was).to_le_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    to
}

/// Copies a directory and all below it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a scratch directory is writable");
    for entry in std::fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file is copied");
        }
    }
}

/// A configuration for the device under test.
pub fn config(teacher: &Path, student: &Path, change: impl FnOnce(&mut Options)) -> RunConfig {
    complete(|options| {
        options.models =
            ModelOptions { teacher: Some(teacher.to_owned()), student: Some(student.to_owned()), model: None };
        change(options);
    })
}

/// The same of a model that trains without a teacher.
pub fn config_alone(model: &Path, change: impl FnOnce(&mut Options)) -> RunConfig {
    complete(|options| {
        options.models.model = Some(model.to_owned());
        change(options);
    })
}

fn complete(change: impl FnOnce(&mut Options)) -> RunConfig {
    let mut options = Options::default();
    (options.arithmetic.precision, options.arithmetic.gemm) = (Precision::Fp32, gemm());
    (options.shape.batch_size, options.shape.seq_len) = (2, 16);
    (options.steps, options.optimizer.lr) = (4, 1e-3);
    options.target.device = device().parse().expect("PRECAST_TEST_DEVICE names a device");
    options.target.kernels.bundle = bundle();
    options.output.checkpoint_every = 0;
    change(&mut options);
    options.planned().expect("a complete configuration")
}

/// A sealed session with its weights up.
pub fn session(config: &RunConfig) -> Session {
    session_placed(config, Placement::Arena)
}

pub fn session_placed(config: &RunConfig, placement: Placement) -> Session {
    session_on(precast::device::open_for(config).expect("a device"), config, placement)
}

pub fn session_on(driver: Box<dyn Driver>, config: &RunConfig, placement: Placement) -> Session {
    let models = RunModels::open(config).expect("models");
    let startup = &mut Startup::default();
    let (mut session, ()) = Session::open(driver, &models, config, placement, startup, |_| ()).expect("a session");
    session.upload(&models, |_| Ok(())).expect("weights that are sent");
    session
}

/// The gradient of a matrix of the adapter, row by row, before clipping.
pub fn adapter_gradient(session: &mut Session, parameter: &AdapterParameter) -> Vec<f32> {
    let grad = session.plan.trained().trained().expect("an adapter trains").grad;
    let placed = session.read(grad.slice(parameter.start, extent(parameter))).expect("gradients");
    gathered(parameter, &bytemuck::pod_collect_to_vec::<u8, f32>(&placed))
}

/// Logits of one sequence under a model, fp32, tokens x vocabulary: what the evaluation plan leaves behind.
pub fn logits(model: &Path, ids: &[u32]) -> Vec<f32> {
    logits_adapted(model, None, ids)
}

/// The same under a model with an adapter.
pub fn logits_adapted(model: &Path, adapter: Option<&Path>, ids: &[u32]) -> Vec<f32> {
    let checkpoint = Checkpoint::open(model).expect("a model");
    let kernels = Kernels { bundle: bundle(), ..Kernels::default() };
    let driver = precast::device::open(device().parse().expect("a device name"), &kernels).expect("a device");
    let arch = driver.device().arch().expect("an architecture");
    let (config, seq_len) = (checkpoint.config(), ids.len() as u32);
    let adapter = adapter.map(|path| Adapter::open(path, (model, config)).expect("an adapter"));
    let adapters = adapter.as_ref().map_or_else(Adapters::none, |adapter| adapter.layout.adapters());
    let adapted = Student { config, formats: &Formats::dense(), adapters: &adapters };
    let plan = EvaluationPlan::with(adapted, (1, seq_len), Precision::Fp32, arch).expect("a plan");
    let source = kernels.find(arch, &plan.plan).expect("kernels");
    let mut loading = Loading::new(driver);
    loading.load(&source.open().expect("a bundle"), &plan.plan, &[]).expect("kernels load");
    let mut sealed = loading.seal(&plan.plan, Placement::Arena).expect("memory");
    let tables = rope::tables(&config.rope_frequencies(), seq_len);
    let mut write = |tensor, bytes: &[u8]| sealed.write(tensor, bytes).expect("a copy");
    write(plan.model.rope.cos, bytemuck::cast_slice(&tables.cos));
    write(plan.model.rope.sin, bytemuck::cast_slice(&tables.sin));
    for (parameter, weight) in plan.model.weights.list() {
        let mut scratch = Scratch::default();
        let bytes = checkpoint.read(parameter, Dtype::F32.into(), &mut scratch).expect("weights");
        write(weight.tensor, bytes);
    }
    if let Some((adapter, weights)) = adapter.as_ref().zip(plan.adapters.as_ref()) {
        let placed = adapter.all_placed(&weights.parameters).expect("its matrices");
        write(weights.all.tensor, bytemuck::cast_slice(&placed));
    }
    write(plan.ids, bytemuck::cast_slice(ids));
    write(plan.targets, bytemuck::cast_slice(ids));
    sealed.run(evaluation::SCORE).expect("a forward pass");
    floats(&sealed.read(plan.plan.tensor("head.logits").expect("a buffer")).expect("a copy"))
}

/// `precast distill` with the device under test.
pub fn distill(teacher: &Path, student: &Path, data: &Path, out: &Path) -> Command {
    let mut command = precast();
    command.arg("distill").arg("--teacher").arg(teacher).arg("--student").arg(student);
    command.arg("--data").arg(data).arg("--out").arg(out).args(on_device());
    command
}

/// `precast train` with the device under test.
pub fn train(model: &Path, data: &Path, out: &Path) -> Command {
    let mut command = precast();
    command.arg("train").arg("--model").arg(model);
    command.arg("--data").arg(data).arg("--out").arg(out).args(on_device());
    command
}

/// The arguments that name the device under test and its kernels.
pub fn on_device() -> Vec<std::ffi::OsString> {
    let bundle = bundle().map(|bundle| ["--bundle".into(), bundle.into_os_string()]);
    let device = ["--device".into(), device().into(), "--gemm".into(), gemm().to_string().into()];
    device.into_iter().chain(bundle.into_iter().flatten()).collect()
}

/// The metrics of a run.
pub fn metrics_of(out: &Path) -> Vec<StepRecord> {
    Metrics::read(&out.join("metrics.jsonl")).expect("metrics.jsonl is written").records
}

/// The `run.json` of a run.
pub fn run_record(out: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(out.join("run.json")).expect("run.json is written"))
        .expect("run.json is JSON")
}

/// The fields of a line of metrics.jsonl that say what the GPU did: as times, they are no part of what is trained.
pub const GPU_FIELDS: [&str; 6] =
    ["power_w", "sm_clock_mhz", "slowest_sm_clock_mhz", "temperature_c", "gpu_busy_percent", "throttle"];

/// What is in a directory, by name.
pub fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// f32 values of little-endian bytes.
pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// ‖a − b‖ / ‖b‖.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let difference = square(&mut a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    (difference / square(&mut b.iter().map(|b| f64::from(*b)))).sqrt()
}

/// Puts a source of tests/libcuda into a directory as a library. Each is compiled once in a process.
fn build_library(source: &'static str, library: PathBuf) -> PathBuf {
    static BUILT: Mutex<BTreeMap<&str, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let code = built.entry(source).or_insert_with(|| {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library);
        succeed(command.arg(root().join("tests/libcuda").join(source)).args(["-ldl", "-pthread"]));
        std::fs::read(&library).expect("the compiler writes a library")
    });
    std::fs::write(&library, code).expect("a scratch directory is writable");
    library
}

/// The stand-in for libcuda, under both of its names.
pub fn build_libcuda(dir: &Path) -> PathBuf {
    let library = build_library("fake.c", dir.join("libcuda.so"));
    std::os::unix::fs::symlink(&library, dir.join("libcuda.so.1")).expect("a scratch directory is writable");
    library
}

/// The stand-in for an NVRTC of CUDA 12.9.
pub fn build_old_nvrtc(dir: &Path) -> PathBuf {
    build_library("nvrtc.c", dir.join("libnvrtc.so.12"))
}

/// The stand-in for cuBLASLt, as it is installed.
pub fn build_cublas(dir: &Path) -> PathBuf {
    build_library("cublaslt.c", dir.join("libcublasLt.so.13"))
}

/// The stand-in for NCCL, as it is installed.
pub fn build_nccl(dir: &Path) -> PathBuf {
    build_library("nccl.c", dir.join("libnccl.so.2"))
}

/// The stand-in for NVML, as the driver brings it.
pub fn build_nvml(dir: &Path) -> PathBuf {
    build_library("nvml.c", dir.join("libnvidia-ml.so.1"))
}

/// What sees the loads of a process in front of any driver: for `LD_PRELOAD`.
pub fn build_shim(dir: &Path) -> PathBuf {
    build_library("shim.c", dir.join("shim.so"))
}

/// Where libraries are looked for besides the system's places.
pub fn library_path() -> String {
    std::env::var("LD_LIBRARY_PATH").unwrap_or_default()
}
