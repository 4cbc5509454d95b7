//! `precast merge`

use std::path::PathBuf;

use clap::Args;
use precast_system::say;

use super::output::existing;
use crate::options::groups::values::model;
use crate::programs::merge;
use crate::run::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    /// Base of the adapter: Hugging Face directory, .gguf or .apr
    #[arg(long, value_name = "PATH", value_parser = model())]
    model: PathBuf,
    /// Adapter: a PEFT directory, as `precast distill` and `precast train` write it
    #[arg(long, value_name = "DIR")]
    adapter: PathBuf,
    /// Directory to write the model to, in the dtype of --model, in bf16 where that is in blocks
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace the model in --out, if Precast wrote it and it has not been changed since
    #[arg(long)]
    overwrite: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Arguments { model, adapter, out, overwrite } = arguments;
    say!("{}", merge::merge(model, adapter, out, existing(*overwrite))?);
    say!("{}", out.display());
    Ok(())
}
