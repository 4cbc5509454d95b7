//! Commands of `precast-aot`.

mod abi;
mod build;
mod compare_evidence;
mod compile;
mod diff;
mod diff_code;
mod inspect;
mod keys;
mod lock;
mod publish;
mod sign;
mod summarize_evidence;
mod toolchain;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

use precast_aot::lock::{LockFileError, NotLocked};

use precast_aot::home;
use precast_aot::publish::{LayoutError, PublishError};
use precast_aot::toolchain::LocateError;
use precast_aot::toolchain::pins::{NVRTC, Pin, Wheel};
use precast_fatbins::{Bundle, BundleError, SignatureError, TrustedKey};
use precast_kernels::Arch;
use precast_models::kernels::{self, UnknownKernel};
use precast_models::{Model, ModelError, Selection};
use precast_system::terminal::tell;
use precast_system::{built, files, input, say, stdout};

/// Size limit of a file that is read whole.
const MOST_BYTES: u64 = 4 << 30;

/// Compile every kernel a model needs, ahead of time, into one bundle.
#[derive(Parser)]
#[command(name = "precast-aot", version, arg_required_else_help = true)]
pub struct Arguments {
    /// With --version: also commit and compilers
    #[arg(long, requires = "version")]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List every key and variant that runs over the models can launch, and kernels that no run launches yet
    Keys(keys::Arguments),
    /// Compile the kernels of models, and write a bundle
    Build(build::Arguments),
    /// Write the lock files: the digests that every build must give
    Lock(lock::Arguments),
    /// Compare two bundles, and say if source, options or compiler moved
    Diff(diff::Arguments),
    /// Compare the results of two chips per key, from the files of `precast evidence`
    CompareEvidence(compare_evidence::Arguments),
    /// Summarize a file of `precast evidence` for the repository: digests and norms, 130 KB
    SummarizeEvidence(summarize_evidence::Arguments),
    /// Sign a file so that `minisign -V` and a trainer with the trusted key accept it
    Sign(sign::Arguments),
    /// Write bundle, locks, signatures, bill of materials and provenance as an OCI image layout; needs no network
    Publish(publish::Publish),
    /// Verify a published bundle and install it for builds without a compiler
    Fetch(publish::Fetch),
    /// Check a bundle: signature, encoding, digests, and the facts in each cubin
    Verify(verify::Arguments),
    /// Show the content of a bundle
    Inspect(inspect::Arguments),
    /// Write the Rust of a program's kernels from their C headers
    Abi(abi::Arguments),
    /// Install or find the compiler
    Toolchain(toolchain::Arguments),
    /// Panic, to show a bug report
    #[command(hide = true)]
    Bug,
}

#[derive(Args)]
struct Models {
    /// A built-in model, a model directory or a config.json; repeatable [default: every built-in model]
    #[arg(long = "model", value_name = "NAME|DIR|FILE")]
    models: Vec<String>,
}

impl Models {
    fn find(&self) -> Result<Vec<Model>, ModelError> {
        if self.models.is_empty() {
            return Ok(Model::built_in());
        }
        self.models.iter().map(|model| Model::find(model)).collect()
    }

    /// Returns the configurations that are read.
    fn files(&self) -> Vec<PathBuf> {
        let file = |path: PathBuf| if path.is_dir() { path.join("config.json") } else { path };
        self.models.iter().map(PathBuf::from).map(file).collect()
    }
}

#[derive(Args)]
struct Archs {
    /// Architectures, separated by commas
    #[arg(long, value_delimiter = ',', default_values = Arch::GPUS.map(Arch::argument), value_name = "ARCH")]
    arch: Vec<Arch>,
}

/// Kernels beyond those of the models.
#[derive(Args)]
struct Kernels {
    /// A kernel independent of models: a key, or an operation for its examples; repeatable, and without --model nothing
    /// else [default: kernels that no built-in model launches]
    #[arg(long = "key", value_name = "KEY|OPERATION")]
    keys: Vec<String>,
}

/// Models, kernels and architectures to compile.
#[derive(Args)]
struct Targets {
    #[command(flatten)]
    models: Models,
    #[command(flatten)]
    kernels: Kernels,
    #[command(flatten)]
    archs: Archs,
}

impl Targets {
    fn selection(&self) -> Result<Selection, Failure> {
        let keys = self.kernels.keys.iter().map(|text| kernels::find(text)).collect::<Result<Vec<_>, _>>()?.concat();
        let archs = self.archs.arch.clone();
        Ok(match (&*self.models.models, &*keys) {
            ([], []) => Selection { models: Model::built_in(), keys: kernels::unlaunched(), archs },
            ([], _) => Selection { models: Vec::new(), keys, archs },
            _ => Selection { models: self.models.find()?, keys, archs },
        })
    }
}

/// Directory of the locks.
#[derive(Args)]
struct Locks {
    /// Directory of the models' lock files [default: aot/models/locks of the checkout]
    #[arg(long, value_name = "DIR")]
    locks: Option<PathBuf>,
}

impl Locks {
    fn directory(&self) -> PathBuf {
        self.locks.clone().unwrap_or_else(|| home::of_checkout("aot/models/locks"))
    }
}

/// Keys whose holders' bundles may be used.
#[derive(Args)]
struct Trusted {
    /// Refuse files without a signature by this minisign key: base64 or a .pub file; repeatable
    #[arg(long = "trusted-key", value_name = "KEY")]
    keys: Vec<String>,
}

impl Trusted {
    fn keys(&self) -> Result<Vec<TrustedKey>, SignatureError> {
        self.keys.iter().map(|key| TrustedKey::find(key)).collect()
    }
}

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Kernel(#[from] UnknownKernel),
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Build(#[from] precast_aot::BuildError),
    #[error(transparent)]
    Wheel(#[from] precast_aot::toolchain::wheels::WheelError),
    #[error(transparent)]
    Lock(#[from] LockFileError),
    /// Kernels differ from the locked ones.
    #[error(transparent)]
    NotLocked(#[from] NotLocked),
    /// A model has no lock.
    #[error("no lock for model {model}: {} is not there\nprecast-aot lock --model {model} writes it", path.display())]
    NoLock {
        model: String,
        /// Expected path of the lock.
        path: PathBuf,
    },
    /// A bundle cannot be published, or a published one must not be used.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// A secret key cannot be read or opened.
    #[error("cannot sign: {0}")]
    Key(String),
    /// A trusted key does not parse.
    #[error(transparent)]
    TrustedKey(#[from] SignatureError),
    #[error("cannot start compiler threads: {0}")]
    Threads(String),
    /// A bundle must not be used.
    #[error("{}: {error}", path.display())]
    Bundle { path: PathBuf, error: BundleError },
    /// A named bundle cannot be read.
    #[error("cannot read the bundle {}: {error}\nprecast-aot build --out FILE makes one", path.display())]
    NoBundle { path: PathBuf, error: std::io::Error },
    /// Two bundles hold different machine code.
    #[error("{0} kernels have no kernel with the same machine code in the other bundle")]
    OtherCode(usize),
    /// A file of evidence must not be used.
    #[error("{}: {reason}", path.display())]
    Evidence {
        path: PathBuf,
        /// Fault of the file, for people.
        reason: String,
    },
    /// The output file exists already.
    #[error("--out {} is there already: name another file", .0.display())]
    Exists(PathBuf),
    /// An output file is an input, too.
    #[error("{} would be overwritten, and it is read: name another file to write", .0.display())]
    Input(PathBuf),
    /// Two files of evidence have nothing to compare.
    #[error("they cannot be compared: {0}")]
    Incomparable(String),
    /// Two chips disagree.
    #[error("the chips disagree on {0} of what both computed")]
    Apart(usize),
    /// Files with gaps show no agreement.
    #[error(
        "the chips agree on what both files hold, and {0} of what a chip computes is in neither or in one alone: take the evidence \
         whole, with `precast evidence --out FILE`"
    )]
    Missing(usize),
    /// Headers declare no kernels, or the Rust of them cannot be written.
    #[error("{0}")]
    Headers(String),
    /// Standard output could not be written.
    #[error("cannot write to standard output: {0}")]
    Output(String),
    #[error("cannot {what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: std::io::Error },
}

impl Failure {
    /// Returns 2 for usage, 3 for bundles and kernels, 5 for models, evidence and files at their size limit, 1 for the
    /// rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Io { error, .. } | Failure::Publish(PublishError::Layout(LayoutError::Io { error, .. }))
                if files::is_past_limit(error) =>
            {
                5
            }
            Failure::Bundle { .. }
            | Failure::NoBundle { .. }
            | Failure::Build(_)
            | Failure::NotLocked(_)
            | Failure::NoLock { .. } => 3,
            Failure::Publish(PublishError::Layout(LayoutError::Io { .. })) => 1,
            Failure::Publish(PublishError::Layout(LayoutError::NotOurs { .. })) => 2,
            Failure::Lock(_) | Failure::Publish(_) => 3,
            Failure::TrustedKey(_) | Failure::Kernel(_) | Failure::Exists(_) | Failure::Input(_) => 2,
            Failure::Headers(_)
            | Failure::Model(_)
            | Failure::Evidence { .. }
            | Failure::Incomparable(_)
            | Failure::Missing(_) => 5,
            Failure::OtherCode(_)
            | Failure::Apart(_)
            | Failure::Locate(_)
            | Failure::Wheel(_)
            | Failure::Threads(_)
            | Failure::Key(_)
            | Failure::Output(_)
            | Failure::Io { .. } => 1,
        }
    }
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Build(arguments) => build::run(&arguments),
        Command::Lock(arguments) => lock::run(&arguments),
        Command::Diff(arguments) if arguments.code => diff_code::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::CompareEvidence(arguments) => compare_evidence::run(&arguments),
        Command::SummarizeEvidence(arguments) => summarize_evidence::run(&arguments),
        Command::Sign(arguments) => sign::run(&arguments),
        Command::Publish(arguments) => publish::publish(&arguments),
        Command::Fetch(arguments) => publish::fetch(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Abi(arguments) => abi::run(&arguments),
        Command::Toolchain(arguments) => toolchain::run(&arguments),
        Command::Bug => panic!("asked for by name"),
    }
}

/// Prints what this program is made of, and for which GPUs it compiles, one fact a line. It holds no kernels.
pub fn version() {
    let Pin { package, version, .. } = NVRTC;
    let rows = Arch::GPUS.map(Arch::argument).join(", ");
    built::lines("precast-aot", env!("CARGO_PKG_VERSION")).iter().for_each(|line| say!("{line}"));
    say!("compiles for: {rows}");
    say!("compiler: {package} {version}, unless another is named");
    for Wheel { machine, sha256, .. } in NVRTC.wheels {
        say!("its wheel for {machine}: {sha256}");
    }
}

/// Flushes the program's output.
pub fn finish() -> Result<(), Failure> {
    stdout::finish().map_err(|error| Failure::Output(error.to_string()))
}

fn read(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    input::read(path, MOST_BYTES).map_err(|error| Failure::Io { what: "read", path: path.to_owned(), error })
}

/// Reads the bundle that a person names.
fn read_bundle(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    input::read(path, MOST_BYTES).map_err(|error| Failure::NoBundle { path: path.to_owned(), error })
}

/// Returns a bundle for inspection only. Checks impossible for other sources are listed on standard error.
///
/// # Errors
/// [`Failure::Bundle`] if any part of it is not as declared.
fn examined<'b>(path: &std::path::Path, bundle: Result<Bundle<'b>, BundleError>) -> Result<Bundle<'b>, Failure> {
    let examined = bundle.and_then(|bundle| bundle.examine().map(|reason| (bundle, reason)));
    let (bundle, reason) = examined.map_err(|error| Failure::Bundle { path: path.to_owned(), error })?;
    if let Some(reason) = reason {
        tell(format_args!("note: {} is NOT VERIFIED: {reason}", path.display()));
        tell("Its digests hold, and so does what its cubins say of themselves; no program uses it.");
    }
    Ok(bundle)
}

/// Refuses to write over what is read: a file, or one in a directory.
fn refuse_inputs<'a>(out: &Path, inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    let Ok(written) = out.canonicalize() else { return Ok(()) };
    let mut inputs = inputs.into_iter().filter_map(|input| input.canonicalize().ok());
    if inputs.any(|input| written.starts_with(&input) || input.starts_with(&written)) {
        return Err(Failure::Input(out.to_owned()));
    }
    Ok(())
}

fn write(path: &std::path::Path, bytes: &[u8]) -> Result<(), Failure> {
    files::write_whole(path, bytes).map_err(|error| Failure::Io { what: "write", path: path.to_owned(), error })
}

/// Describes machine code as both comparisons print it.
fn code_json(code: &precast_fatbins::Code) -> serde_json::Value {
    serde_json::json!({
        "sha256": code.digest.to_string(),
        "bytes": code.bytes,
        "registers": code.registers,
        "static_shared_bytes": code.static_shared_bytes,
        "stack_bytes": code.stack_bytes,
    })
}

fn print_json(value: &impl serde::Serialize) {
    say!("{}", serde_json::to_string_pretty(value).expect("plain data serializes"));
}
