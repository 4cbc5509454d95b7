//! `precast data`

use clap::Args;
use precast_system::say;

use crate::programs::data::{RowsRequest, rows};
use crate::run::failure::Failure;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    request: RowsRequest,
    /// Print a line of JSON for each row: file, row, tokens, input_ids and labels, -100 where a token does not count;
    /// or error
    #[arg(long)]
    json: bool,
}

pub fn run(Arguments { request, json }: &Arguments) -> Result<(), Failure> {
    rows(request, &mut |row| match json {
        true => say!("{}", serde_json::to_string(row).expect("plain data serializes")),
        false => say!("{row}"),
    })
}
