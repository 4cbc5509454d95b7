//! `precast-aot summarize-evidence`

use std::path::PathBuf;

use clap::Args;
use precast_fatbins::evidence::Results;
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

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { file, out, trusted } = arguments;
    if out.exists() {
        return Err(Failure::Exists(out.clone()));
    }
    let summary = compare_evidence::read(file, &trusted.keys()?)?.summary();
    let summary = summary.map_err(|error| Failure::Evidence { path: file.clone(), reason: error.to_string() })?;
    let Results::Summary { kernels } = &summary.results else { unreachable!("it was made short") };
    let text = summary.encode();
    write(out, text.as_bytes())?;
    say!("{}: {}, {} bytes", out.display(), count(kernels.len(), "kernel"), text.len());
    Ok(())
}
