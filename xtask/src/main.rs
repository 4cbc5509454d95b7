//! Commands for people and CI: `cargo xtask demo`, `cargo xtask test`, ...

#![allow(clippy::print_stdout)]

mod abi;
mod build;
mod ci;
mod cross;
mod demo;
mod deny;
mod docs;
mod examples;
mod fuzz;
mod golden;
mod gpu;
mod lines;
mod modules;
mod peers;
mod picture;
mod planted;
mod release;
mod release_key;
mod run;
mod setup;
mod simt;
mod test;
mod truth;
mod tuned;
mod workflow;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
enum Task {
    /// Set up, then run a real distillation and write its report
    Demo,
    /// Set up, then run every check: format, lints, documentation, dependencies, workflows, tests, and the CUDA sources
    /// of every operation and variant on the CPU; seconds of each step and test go to target/ci/times.json
    Test,
    /// Build the trainer as releases are built: its bytes do not depend on the directory
    Build {
        /// The same for GB10's host, aarch64-unknown-linux-gnu, on any machine
        #[arg(long)]
        target: Option<String>,
    },
    Release(release::Arguments),
    /// Build for aarch64, and run it under qemu beside this machine's: plans, losses, checkpoints, tests
    Emulate,
    /// The same, and compare it with a build in another directory
    Aarch64,
    /// Test, then run every kernel on the CPU with three seeds, every fuzz target for four seconds, then page, then
    /// prove the artifact: locked, reproducible, published, built offline; DIR receives what to upload
    Ci {
        #[arg(default_value = "target/ci")]
        dir: PathBuf,
    },
    /// The second half of ci
    Prove {
        #[arg(default_value = "target/ci")]
        dir: PathBuf,
    },
    /// The part of prove that makes a release in DIR/dist, and again of a clone elsewhere: equal bytes
    Released {
        #[arg(default_value = "target/ci")]
        dir: PathBuf,
    },
    /// The part of prove that builds the trainer, every kernel and plain ones in two places: equal bytes
    Reproducible,
    /// The part of prove that builds a fresh clone, with and without a network
    Fresh,
    /// The part of prove that packages each crate, and builds them and a trainer from the packages alone
    Packages,
    /// The part of ci that adds a kernel to a copy of the checkout as CONTRIBUTING.md says, and plants mistakes
    Page,
    /// Regenerate kernels/src/abi.rs from the headers of kernels
    Abi,
    /// The part of ci that builds, runs and tests docs/examples, and plants mistakes in one
    Examples,
    /// Compare the public API of the libraries with what is on crates.io, or with a commit
    Semver {
        commit: Option<String>,
    },
    /// Search for inputs that break a parser, by the targets of tests/fuzz, or those named; target/fuzz/of keeps what
    /// is found
    Fuzz {
        targets: Vec<String>,
        /// Time of each target
        #[arg(long, default_value_t = 4)]
        seconds: u64,
        /// Inputs of each target, in place of a time
        #[arg(long, conflicts_with = "seconds")]
        executions: Option<u64>,
    },
    /// Build the pages as a site with a search, by mdbook from crates.io; fails on a broken link
    Docs,
    /// Check licenses and sources of dependencies against deny.toml
    Deny,
    /// Check the workflows of GitHub by actionlint
    Workflows,
    /// Run the CUDA sources of every example whose name contains TEXT on the CPU, under a checker, or of every key of
    /// every model; after an edit of a CUDA source nothing is built for it
    Simt {
        #[arg(default_value = "", hide_default_value = true)]
        text: String,
        /// Those of models whose name contains TEXT
        #[arg(long, value_name = "TEXT", conflicts_with = "text")]
        models: Option<String>,
        /// Print what they move: sectors per request, share of the bytes that was needed, bank conflicts
        #[arg(long)]
        report: bool,
    },
    /// Print the lines of shipped Rust of each package and folder, without tests, comments and blanks
    Lines {
        /// Print the lines of tests, of each folder and file
        #[arg(long)]
        tests: bool,
    },
    /// Redraw docs/packages.svg and docs/trainer.svg from the imports, and name circles
    Modules,
    /// Write the key of PRECAST_RELEASE_KEY, opened with PRECAST_KEY_PASSWORD, to a new file of mode 0600
    ReleaseKey {
        /// Remove it, if it is there
        #[arg(long)]
        remove: bool,
        file: PathBuf,
    },
    /// Redraw docs/report.svg from the demo's report
    Picture,
    /// Add times that `precast bench tune FILE` measured to kernels/src/tuned.txt
    Tuned {
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Compare adapters with PEFT, students with transformers and llama.cpp, exports with llama.cpp's converter, event
    /// files with TensorBoard, and tokens and labels of rows with transformers, TRL and datasets (masks); installs 3 GB
    /// from PyPI in target/peers, and as much for masks, unless PRECAST_PEERS_PYTHON names a Python that has
    /// xtask/peers/requirements.txt or masks.txt; PRECAST_BIN names a trainer in place of one that is built
    Peers {
        checks: Vec<String>,
    },
    /// Compare likelihoods of real models with exact ones (fetches 1.2 GB)
    Truth {
        /// Compare every golden case of DIR, as tests/golden/make.py writes them, with PyTorch's numbers
        #[arg(long, value_name = "DIR")]
        golden: Option<PathBuf>,
    },
    /// Pack programs, tests and kernels for a machine with a GPU and without Rust; and golden cases of GOLDEN
    Gpu {
        dir: PathBuf,
        golden: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // Without a backtrace, which would show this program and not the checked one.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    std::env::set_current_dir(run::root())?;
    match task {
        Task::Demo => demo::demo(),
        Task::Test => test::test(),
        Task::Build { target: None } => build::build().map(drop),
        Task::Build { target: Some(target) } => cross::build(&target).map(drop),
        Task::Release(arguments) => release::release(&arguments),
        Task::Emulate => cross::emulate().map(drop),
        Task::Aarch64 => cross::aarch64(),
        Task::Ci { dir } => ci::ci(&dir),
        Task::Prove { dir } => ci::prove(&dir),
        Task::Released { dir } => ci::released::check(&dir),
        Task::Reproducible => ci::reproducible::check(|| Ok(())),
        Task::Fresh => ci::fresh::check(),
        Task::Packages => ci::packages::check(),
        Task::Page => ci::page::check(),
        Task::Abi => abi::abi(),
        Task::Examples => examples::all(),
        Task::Semver { commit } => ci::semver::check(commit.as_deref()),
        Task::Fuzz { targets, seconds, executions } => {
            fuzz::fuzz(&targets, &executions.map_or(fuzz::Most::Seconds(seconds), fuzz::Most::Executions))
        }
        Task::Docs => docs::docs(),
        Task::Deny => deny::check(),
        Task::Workflows => workflow::lint(),
        Task::Simt { text, report: true, .. } => simt::report(&text),
        Task::Simt { text, models, .. } => simt::simt(&models.unwrap_or(text)),
        Task::Lines { tests: false } => lines::lines(),
        Task::Lines { tests: true } => lines::tests(),
        Task::Modules => modules::modules(),
        Task::ReleaseKey { remove: true, file } => release_key::remove(&file),
        Task::ReleaseKey { file, .. } => release_key::write(&file),
        Task::Picture => picture::picture(),
        Task::Tuned { files } => tuned::merge(&files),
        Task::Peers { checks } => peers::peers(&checks),
        Task::Truth { golden: None } => truth::truth(),
        Task::Truth { golden: Some(directory) } => golden::compare(&directory),
        Task::Gpu { dir, golden } => gpu::pack(&dir, golden.as_deref()),
    }
}
