//! `precast-aot verify`

use std::path::PathBuf;

use clap::Args;
use precast_fatbins::{Bundle, say};

use super::{Failure, read};

#[derive(Args)]
pub struct Arguments {
    /// The bundle
    file: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let bytes = read(path)?;
    let failure = |error| Failure::Bundle { path: path.clone(), error };
    let bundle = Bundle::read(&bytes).map_err(failure)?;
    bundle.verify().map_err(failure)?;
    say!(
        "{}: {} modules verified, manifest {}, {}",
        path.display(),
        bundle.manifest().modules.len(),
        bundle.digest(),
        bundle.manifest().compiler
    );
    Ok(())
}
