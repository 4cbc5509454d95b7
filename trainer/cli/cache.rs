//! `precast cache`

use clap::Args;

use super::print_as;
use crate::base::load_trace::Verbose;
use crate::programs::cache::{CacheRequest, fill};
use crate::programs::failure::Failure;
use crate::ranks;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    request: CacheRequest,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(Arguments { mut request, verbose, json }: Arguments) -> Result<(), Failure> {
    verbose.start();
    ranks::check_alone("cache")?;
    request.heading = !json;
    let outcome = fill(&request)?;
    print_as(json, &outcome, format_args!("{}: {outcome}", request.out.display()));
    Ok(())
}
