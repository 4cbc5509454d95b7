//! `precast eval`

use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use precast_fatbins::say;
use precast_plan::Precision;

use super::print_json;
use crate::bundle::Kernels;
use crate::config::DeviceChoice;
use crate::error::Failure;
use crate::evaluate::{Evaluation, evaluate};

#[derive(Args)]
pub struct Arguments {
    /// The model: a Hugging Face directory or a .gguf file
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// Text: .txt, .jsonl or .bin; repeatable
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    data: Vec<PathBuf>,
    /// Sequences at a time
    #[arg(long, default_value_t = 8, value_name = "B")]
    batch_size: u32,
    /// Longest context
    #[arg(long, default_value_t = 1024, value_name = "S")]
    seq_len: u32,
    /// Arithmetic: fp32 or bf16
    #[arg(long, default_value = "fp32", value_name = "P")]
    precision: Precision,
    /// auto, cuda:N, sim, or generic:N for cuda:N with the kernels that every architecture has
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    #[command(flatten)]
    kernels: Kernels,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let request = Evaluation {
        model: arguments.model.clone(),
        data: arguments.data.clone(),
        batch_size: arguments.batch_size,
        seq_len: arguments.seq_len,
        precision: arguments.precision,
        device: arguments.device,
        kernels: arguments.kernels.clone(),
    };
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} batches  {elapsed}").expect("a valid template");
    let bar = ProgressBar::new(0).with_style(style);
    let score = evaluate(&request, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    if arguments.json {
        print_json(&score);
    } else {
        say!("nll {:.4} nats a token, perplexity {:.3}, {} tokens", score.nll, score.perplexity, score.tokens);
    }
    Ok(())
}
