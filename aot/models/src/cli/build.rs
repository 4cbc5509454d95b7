//! `precast-aot build`

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use precast_aot::lock;
use precast_fatbins::Digest;
use precast_kernels::Arch;
use precast_models::LOCK;
use precast_system::say;
use precast_system::terminal::tell;

use super::compile::Compiler;
use super::failure::Failure;
use super::io::{refuse_inputs, write};
use super::targets::{Locks, Targets};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    targets: Targets,
    #[command(flatten)]
    compiler: Compiler,
    /// Bundle file to write
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    locks: Locks,
    /// Fail, and write nothing, if a kernel differs from its lock or a lock is missing
    #[arg(long)]
    locked: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let started = Instant::now();
    let selection = arguments.targets.selection()?;
    let (directory, parts) = (arguments.locks.directory(), selection.locked());
    let locks = parts.iter().map(|part| lock::path(&directory, &part.name));
    let inputs: Vec<PathBuf> = locks.chain(arguments.targets.models.files()).collect();
    refuse_inputs(&arguments.out, inputs.iter().chain(&arguments.compiler.nvrtc))?;
    let request = selection.request();
    let built = arguments.compiler.build(&request)?;
    let lock::Comparison { changes, unlocked } = lock::compare(&built.manifest, &parts, &request.archs, &directory)?;
    if arguments.locked {
        if let Some(part) = unlocked.first() {
            return Err(Failure::NoLock { path: lock::path(&directory, &part.name), command: part.command.clone() });
        }
        if !changes.is_empty() {
            return Err(lock::NotLocked { directory, changes, command: LOCK.to_owned() }.into());
        }
    } else {
        changes.iter().for_each(|change| tell(format_args!("warning: not as locked: {change}")));
    }
    let bundle = built.encode();
    write(&arguments.out, &bundle)?;
    let count = |arch: &Arch| built.manifest.modules.iter().filter(|module| module.arch == arch.name()).count();
    let archs: Vec<String> = request.archs.iter().map(|arch| format!("{} {arch}", count(arch))).collect();
    let models = match &*built.manifest.built_for {
        [] => String::new(),
        models => format!(" for {}", models.join(", ")),
    };
    say!(
        "{}: {} kernels{models}, {} bytes, {}; compiled {} in {:.1} s with {}",
        arguments.out.display(),
        archs.join(" + "),
        bundle.len(),
        Digest::of(&bundle).short(),
        built.compiled,
        started.elapsed().as_secs_f64(),
        built.manifest.compiler,
    );
    Ok(())
}
