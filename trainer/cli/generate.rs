//! `precast generate`

use clap::Args;

use super::print_as;
use crate::base::load_trace::Verbose;
use crate::programs::failure::Failure;
use crate::programs::generate::{Generation, generate};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    generation: Generation,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON: text and token ids
    #[arg(long)]
    json: bool,
}

pub fn run(Arguments { mut generation, verbose, json }: Arguments) -> Result<(), Failure> {
    verbose.start();
    generation.forward.heading = !json;
    let generated = generate(&generation)?;
    print_as(json, &generated, &generated.text);
    Ok(())
}
