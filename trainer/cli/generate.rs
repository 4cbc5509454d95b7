//! `precast generate`

use clap::Args;
use precast_system::say;

use super::print_json;
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
    if json {
        print_json(&generated);
    } else {
        say!("{}", generated.text);
    }
    Ok(())
}
