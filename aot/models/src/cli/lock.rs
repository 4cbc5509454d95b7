//! `precast-aot lock`

use clap::Args;
use precast_aot::lock::{self, Strictness};
use precast_fatbins::Lock;
use precast_kernels::Arch;
use precast_models::{LOCK, Selection, kernels};
use precast_system::{count, say};

use super::compile::Compiler;
use super::failure::Failure;
use super::io::{refuse_inputs, write};
use super::targets::{Locks, Models};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    models: Models,
    #[command(flatten)]
    compiler: Compiler,
    #[command(flatten)]
    locks: Locks,
    /// Write nothing: fail if a lock file would change
    #[arg(long)]
    check: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let directory = arguments.locks.directory();
    let all = arguments.models.models.is_empty();
    let keys = if all { kernels::unlaunched() } else { Vec::new() };
    let selection = Selection { models: arguments.models.find()?, keys, archs: Arch::GPUS.to_vec() };
    let parts = selection.locked();
    for part in &parts {
        refuse_inputs(&lock::path(&directory, &part.name), &arguments.models.files())?;
    }
    let built = arguments.compiler.build(&selection.request())?;
    let mut changed = Vec::new();
    for part in &parts {
        let path = lock::path(&directory, &part.name);
        let old = match lock::read(&directory, &part.name) {
            // A file of an older version is replaced whole.
            Err(lock::LockFileError::Parse { .. }) | Ok(None) => Lock::default(),
            read => read?.unwrap_or_default(),
        };
        let own = lock::of(&built.manifest, part, &selection.archs);
        // Other models' kernels stay in the lock that they share.
        let new = if part.strictness == Strictness::Shared && !all { old.clone().merged(own) } else { own };
        let changes = old.compare(&new);
        say!("{}: {}, {} changed", path.display(), count(new.len(), "module"), changes.len());
        if !arguments.check {
            if !old.is_empty() {
                changes.iter().for_each(|change| say!("  {change}"));
            }
            write(&path, new.to_string().as_bytes())?;
        }
        changed.extend(changes);
    }
    if arguments.check && !changed.is_empty() {
        return Err(lock::NotLocked { directory, changes: changed, command: LOCK.to_owned() }.into());
    }
    Ok(())
}
