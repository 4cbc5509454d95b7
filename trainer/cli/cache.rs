//! `precast cache`

use clap::Args;

use super::output::print_as;
use crate::base::load_trace::Verbose;
use crate::programs::cache::{CacheRequest, convert, fill};
use crate::ranks::{self, Gpus};
use crate::run::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    request: CacheRequest,
    /// GPUs of this host to fill on, at the same bytes
    ///
    /// One process each. Not needed under torchrun, srun or mpirun: each process that they start becomes a rank.
    #[arg(long, value_name = "N|all", conflicts_with = "from", help_heading = "Device")]
    gpus: Option<Gpus>,
    /// Address at which the ranks of a launcher meet, if it gives none: the host of rank 0, and a port that is free
    /// there
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "from", help_heading = "Device")]
    rendezvous: Option<String>,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(Arguments { mut request, gpus, rendezvous, verbose, json }: Arguments) -> Result<(), Failure> {
    verbose.start();
    if !request.from.is_empty() {
        let outcome = convert(&request)?;
        print_as(json, &outcome, format_args!("{}: {outcome}", request.out.display()));
        return Ok(());
    }
    // Refused before any rank starts.
    request.check_temperature()?;
    request.data_request()?;
    let place = ranks::place(request.dry_run, gpus, rendezvous.as_deref(), request.target.device)?;
    request.heading = !json && place.rank == 0;
    if let Some(outcome) = fill(&request, &place)? {
        print_as(json, &outcome, format_args!("{}: {outcome}", request.out.display()));
    }
    Ok(())
}
