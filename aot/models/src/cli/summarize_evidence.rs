//! `precast-aot summarize-evidence`

use std::path::PathBuf;

use clap::Args;
use precast_system::{count, say};

use super::compare_evidence;
use super::failure::Failure;
use super::io::write;
use super::targets::Trusted;

#[derive(Args)]
pub struct Arguments {
    /// File of `precast evidence`
    file: PathBuf,
    /// File to write; must not exist
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    trusted: Trusted,
}

pub fn run(Arguments { file, out, trusted }: &Arguments) -> Result<(), Failure> {
    if out.exists() {
        return Err(Failure::Exists(out.clone()));
    }
    let summary = compare_evidence::read(file, &trusted.keys()?)?.summary();
    let text = summary.encode();
    write(out, text.as_bytes())?;
    say!("{}: {}, {} bytes", out.display(), count(summary.kernels.len(), "kernel"), text.len());
    Ok(())
}
