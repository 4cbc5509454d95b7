//! `precast config`

use std::path::PathBuf;

use clap::Args;

use super::print_json;
use crate::inputs::checkpoint::Checkpoint;
use crate::programs::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    /// Model: Hugging Face directory, .gguf or .apr
    model: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    print_json(&Checkpoint::open(&arguments.model)?.json);
    Ok(())
}
