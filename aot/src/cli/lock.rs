//! `precast-aot lock`

use clap::Args;
use precast_aot::{Request, lock};
use precast_fatbins::{Lock, say};
use precast_kernels::Arch;

use super::compile::Compiler;
use super::{Failure, Locks, Models, write};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    models: Models,
    #[command(flatten)]
    compiler: Compiler,
    #[command(flatten)]
    locks: Locks,
    /// Write nothing: fail where a lock file would change
    #[arg(long)]
    check: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let directory = arguments.locks.directory();
    let request = Request { models: arguments.models.find()?, archs: Arch::GPUS.to_vec() };
    let built = arguments.compiler.build(&request)?;
    let mut all = Vec::new();
    for model in &request.models {
        let path = lock::path(&directory, &model.name);
        let new = lock::of_model(&built.manifest, &request, model);
        let old = match lock::read(&directory, &model.name) {
            // A file of an older version is replaced as a whole.
            Err(lock::LockFileError::Parse { .. }) | Ok(None) => Lock::default(),
            read => read?.unwrap_or_default(),
        };
        let changes = old.compare(&new);
        say!("{}: {} modules, {} changed", path.display(), new.len(), changes.len());
        if !arguments.check {
            if !old.is_empty() {
                changes.iter().for_each(|change| say!("  {change}"));
            }
            write(&path, new.to_string().as_bytes())?;
        }
        all.extend(changes);
    }
    if arguments.check && !all.is_empty() {
        return Err(lock::NotLocked { directory, changes: all }.into());
    }
    Ok(())
}
