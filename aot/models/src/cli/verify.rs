//! `precast-aot verify`

use precast_kernels::KERNELS;
use std::path::PathBuf;

use clap::Args;
use precast_fatbins::BundleFile;
use precast_system::{count, say};

use super::failure::Failure;
use super::targets::Trusted;

#[derive(Args)]
pub struct Arguments {
    /// The bundle
    file: PathBuf,
    #[command(flatten)]
    trusted: Trusted,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let keys = arguments.trusted.keys()?;
    let failure = |error| Failure::Bundle { path: path.clone(), error };
    let file = BundleFile::read(path).map_err(|error| Failure::NoBundle { path: path.clone(), error })?;
    let bundle = file.open(&keys, &KERNELS).map_err(failure)?;
    bundle.verify().map_err(failure)?;
    say!(
        "{}: {} verified, manifest {}, {}",
        path.display(),
        count(bundle.manifest().modules.len(), "module"),
        bundle.digest(),
        bundle.manifest().compiler
    );
    match file.signer(&keys).map_err(|error| failure(error.into()))? {
        Some(key) => say!("signed by {key}"),
        None => say!("signature not checked: no --trusted-key"),
    }
    Ok(())
}
