//! `precast evidence`

use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::evidence::Evidence;
use precast_fatbins::{Digest, signature_path};
use precast_system::{count, files, say};

use crate::options::DeviceOptions;
use crate::programs::evidence::gather;
use crate::run::failure::Failure;
use crate::run::signing::SigningKey;

#[derive(Args)]
pub struct Arguments {
    /// File to write, which is not there yet
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    target: DeviceOptions,
    /// Seed of the self-test's random inputs: evidence of different seeds cannot be compared
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Sign it with this secret key, as minisign writes it, into FILE.minisig; an encrypted one is opened with
    /// $PRECAST_KEY_PASSWORD
    #[arg(long, value_name = "KEY")]
    key: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { out, target, seed, key } = arguments;
    let signature = key.is_some().then(|| signature_path(&out));
    if let Some(there) = [&out].into_iter().chain(&signature).find(|path| path.exists()) {
        return Err(Failure::usage(format!("--out: {} is there already: name another file", there.display())));
    }
    let key = key.map(SigningKey::open).transpose()?;
    let evidence = gather(&target, seed)?;
    let text = evidence.encode();
    let write = |path: &Path, bytes: &[u8]| files::write_whole(path, bytes).map_err(Failure::io("write", path));
    write(&out, text.as_bytes())?;
    if let Some(key) = key {
        write(&signature_path(&out), key.sign(text.as_bytes())?.as_bytes())?;
    }
    let (faults, Evidence { chip, note, kernels, golden, .. }) = (evidence.faults(), &evidence);
    say!("{} ({}), {}", chip.name, chip.arch, count(kernels.len(), "kernel"));
    note.iter().for_each(|note| say!("note: {note}"));
    faults.iter().for_each(|fault| say!("FAIL  {fault}"));
    let launches = kernels.values().map(|kernel| kernel.launches.len()).sum();
    let checked = format!("{} and {}", count(launches, "launch"), count(golden.len(), "training run"));
    say!("{checked} checked\nsha256 {}", Digest::of(text.as_bytes()));
    match faults.len() {
        0 => Ok(()),
        failed => Err(Failure::Kernels(format!("{failed} of {checked} failed on {}", chip.name))),
    }
}
