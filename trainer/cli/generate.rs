//! `precast generate`

use clap::Args;
use precast_system::say;

use super::forward::ForwardOptions;
use super::print_json;
use crate::base::verbose::Verbose;
use crate::device::frozen::Forward;
use crate::inputs::chat::Date;
use crate::programs::failure::Failure;
use crate::programs::generate::{Generation, generate};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    forward: ForwardOptions,
    /// What a user says to the model, by its chat template
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// The prompt is the beginning of a text instead
    #[arg(long)]
    raw: bool,
    /// Tokens to generate, at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    max_tokens: u32,
    /// Date that strftime_now returns in chat templates, YYYY-MM-DD; undefined without it
    #[arg(long, value_name = "DATE")]
    chat_date: Option<Date>,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON: text and token ids
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.verbose.start();
    let generated = generate(&Generation {
        forward: Forward { heading: !arguments.json, ..arguments.forward.forward(None)? },
        prompt: arguments.prompt,
        raw: arguments.raw,
        max_tokens: arguments.max_tokens,
        chat_date: arguments.chat_date,
    })?;
    if arguments.json {
        print_json(&generated);
    } else {
        say!("{}", generated.text);
    }
    Ok(())
}
