//! Starts the command that a person names.

use clap::{Parser, Subcommand};
use precast_aot::toolchain::pins::{NVRTC, Pin, Wheel};
use precast_kernels::Arch;
use precast_system::{built, say, stdout};

use super::failure::Failure;
use super::{
    abi, build, compare_evidence, diff, diff_code, inspect, keys, lock, publish, sign, summarize_evidence, toolchain,
    verify,
};

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
    /// Drop from a file of `precast evidence` what is not compared, for the repository
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
