//! `precast-aot lock`

use clap::Args;
use precast_aot::lock::{self, Part, Strictness};
use precast_fatbins::Lock;
use precast_kernels::Arch;
use precast_models::{LOCK, Selection};
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
    let archs = Arch::GPUS.to_vec();
    let selection = match all {
        true => Selection { archs, ..Selection::everything() },
        false => Selection::of_models(arguments.models.find()?, archs),
    };
    let parts = selection.locked();
    for part in &parts {
        refuse_inputs(&lock::path(&directory, &part.name), &arguments.models.files())?;
    }
    // Other models' kernels stay in the lock that they share.
    let keeps_others = |part: &Part| part.strictness == Strictness::Shared && !all;
    // Read before minutes of compiling.
    let old = |part: &Part| match lock::read(&directory, &part.name) {
        // A file of an older version is replaced whole.
        Err(lock::LockFileError::Parse { .. }) if !keeps_others(part) => Ok(Lock::default()),
        read => read.map(Option::unwrap_or_default),
    };
    let olds = parts.iter().map(old).collect::<Result<Vec<Lock>, _>>()?;
    let built = arguments.compiler.build(&selection.request())?;
    let mut changed = Vec::new();
    for (part, old) in parts.iter().zip(olds) {
        let path = lock::path(&directory, &part.name);
        let own = lock::of(&built.manifest, part, &selection.archs);
        let new = match keeps_others(part) {
            true => lock::select(&old, &Selection::everything().build_keys(), &selection.archs).merged(own),
            false => own,
        };
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
