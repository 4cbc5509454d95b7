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
use crate::score::{Demands, Score};
use crate::verbose::Verbose;
use crate::weight_format::WeightFormat;

#[derive(Args)]
pub struct Arguments {
    /// The model: a Hugging Face directory or a .gguf file
    #[arg(long, value_name = "PATH")]
    model: PathBuf,
    /// Text: .txt, .jsonl or .bin; repeatable
    #[arg(long, required = true, num_args = 1.., value_name = "PATH")]
    data: Vec<PathBuf>,
    /// Sequences at a time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..), value_name = "B")]
    batch_size: u32,
    /// Longest context
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..), value_name = "S")]
    seq_len: u32,
    /// How the weights live on the device, at the same bits: bf16 (the precision), stored (matrices as a GGUF file holds them)
    /// or auto (bf16 where that fits into the device's memory, else stored)
    #[arg(long, default_value_t = WeightFormat::Auto, value_name = "FORM")]
    format: WeightFormat,
    /// Arithmetic: fp32 or bf16
    #[arg(long, default_value = "fp32", value_name = "P")]
    precision: Precision,
    /// auto, cuda:N, sim, or portable:N: cuda:N with the kernels that every architecture has
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: DeviceChoice,
    #[command(flatten)]
    kernels: Kernels,
    /// Allow a model that is no better than guessing uniformly
    #[arg(long)]
    untrained: bool,
    /// Fail if the perplexity is above this
    #[arg(long, value_parser = positive, value_name = "X")]
    max_perplexity: Option<f64>,
    /// Score this model on the same data too, and fail unless --model is better
    #[arg(long, value_name = "PATH")]
    below: Option<PathBuf>,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a number above 0".to_owned())
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    arguments.verbose.start();
    let request = Evaluation {
        model: arguments.model.clone(),
        data: arguments.data.clone(),
        batch_size: arguments.batch_size,
        seq_len: arguments.seq_len,
        precision: arguments.precision,
        format: arguments.format,
        device: arguments.device,
        kernels: arguments.kernels.clone(),
        heading: !arguments.json,
    };
    let score = scored(&request)?;
    let baseline = match &arguments.below {
        Some(model) => Some((model, scored(&Evaluation { model: model.clone(), ..request.clone() })?)),
        None => None,
    };
    if arguments.json {
        let mut json = serde_json::to_value(score).expect("plain data serialises");
        if let Some((model, baseline)) = &baseline {
            json["below"] = serde_json::to_value(baseline).expect("plain data serialises");
            json["below"]["model"] = model.display().to_string().into();
        }
        print_json(&json);
    } else {
        print(&score, "");
        if let Some((model, baseline)) = &baseline {
            print(baseline, &format!("{}: ", model.display()));
        }
    }
    let demands = Demands { untrained: arguments.untrained, max_perplexity: arguments.max_perplexity };
    score.check(&arguments.model, demands)?;
    if let Some((model, baseline)) = &baseline {
        score.check_below(&arguments.model, baseline, model)?;
    }
    Ok(())
}

/// Scores a model, with a bar for people.
fn scored(request: &Evaluation) -> Result<Score, Failure> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} batches  {elapsed}").expect("a valid template");
    let bar = ProgressBar::new(0).with_style(style);
    let score = evaluate(request, |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    Ok(score)
}

fn print(score: &Score, of: &str) {
    say!("{of}nll {:.4} nats a token, perplexity {:.3}, {} tokens", score.nll, score.perplexity, score.tokens);
}
