//! The commands of `precast-aot`.

mod build;
mod inspect;
mod keys;
mod toolchain;
mod verify;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use precast_aot::models::{Model, ModelError};
use precast_aot::toolchain::LocateError;
use precast_fatbins::{BundleError, files, say};
use precast_kernels::Arch;

/// Compile every kernel a model needs, ahead of time, into one bundle.
#[derive(Parser)]
#[command(name = "precast-aot", version, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List every key and variant that runs over the models can launch
    Keys(keys::Arguments),
    /// Compile them and write a bundle
    Build(build::Arguments),
    /// Check a bundle: encoding, digests, and what each cubin says of itself
    Verify(verify::Arguments),
    /// Show what a bundle holds
    Inspect(inspect::Arguments),
    /// Install or find the compiler
    Toolchain(toolchain::Arguments),
}

/// Which models.
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
}

/// Which architectures.
#[derive(Args)]
struct Archs {
    /// Architectures, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "sm_89,sm_90,sm_121", value_name = "ARCH")]
    arch: Vec<Arch>,
}

/// Why a command failed, and with which exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A model cannot be found or followed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// No compiler.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// Kernels do not compile.
    #[error(transparent)]
    Build(#[from] precast_aot::BuildError),
    /// A wheel cannot be installed.
    #[error(transparent)]
    Wheel(#[from] precast_aot::toolchain::wheels::WheelError),
    /// A bundle must not be used.
    #[error("{}: {error}", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// Why.
        error: BundleError,
    },
    /// The disk.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// read, write.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl Failure {
    /// 3 for bundles and kernels, 5 for models, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Bundle { .. } | Failure::Build(_) => 3,
            Failure::Model(_) => 5,
            Failure::Locate(_) | Failure::Wheel(_) | Failure::Io { .. } => 1,
        }
    }
}

/// Runs a command.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Build(arguments) => build::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Toolchain(arguments) => toolchain::run(&arguments),
    }
}

fn read(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::Io { what: "read", path: path.to_owned(), error })
}

fn write(path: &std::path::Path, bytes: &[u8]) -> Result<(), Failure> {
    files::write_whole(path, bytes).map_err(|error| Failure::Io { what: "write", path: path.to_owned(), error })
}

/// Prints JSON for programs.
fn print_json(value: &impl serde::Serialize) {
    say!("{}", serde_json::to_string_pretty(value).expect("plain data serialises"));
}
