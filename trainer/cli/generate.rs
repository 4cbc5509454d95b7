//! `precast generate`

use clap::Args;

use super::output::print_as;
use crate::base::load_trace::Verbose;
use crate::programs::generate::{Generation, answer, complete};
use crate::ranks;
use crate::run::failure::Failure;

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
    ranks::check_alone("generate")?;
    generation.forward.heading = !json;
    if let Some(out) = generation.out.clone() {
        if json {
            return Err(Failure::usage(
                "--json prints the answer to --prompt; rows of --out are JSON already: leave it out",
            ));
        }
        return complete(&generation, &out);
    }
    let generated = answer(&generation)?;
    print_as(json, &generated, &generated.text);
    Ok(())
}
