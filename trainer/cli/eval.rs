//! `precast eval`

use std::path::PathBuf;

use clap::{Arg, Args};
use indicatif::{ProgressBar, ProgressStyle};
use precast_fatbins::say;

use super::print_json;
use crate::config::{Flags, Options, Takes, missing};
use crate::error::Failure;
use crate::evaluate::{Evaluation, evaluate};
use crate::score::{Demands, Score};
use crate::verbose::Verbose;
use crate::weight_format::WeightFormat;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    flags: Flags<Eval>,
    /// How the weights live on the device, at the same bits: bf16 (the precision), stored (matrices as a GGUF file holds them)
    /// or auto (bf16 where that fits into the device's memory, else stored)
    #[arg(long, default_value_t = WeightFormat::Auto, value_name = "FORM")]
    format: WeightFormat,
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

/// What of a run an evaluation has too.
struct Eval;

impl Takes for Eval {
    const OPTIONS: Option<&'static [&'static str]> = Some(&[
        "model",
        "adapter",
        "data",
        "batch_size",
        "seq_len",
        "precision",
        "gemm",
        "device",
        "bundle",
        "trusted_key",
    ]);

    fn adapt(option: Arg) -> Arg {
        match option.get_id().as_str() {
            "model" => option.help("The model: a Hugging Face directory, a .gguf or an .apr file").required(true),
            "adapter" => option.help("An adapter of --model: a PEFT directory, as distill and train write it"),
            "data" => option.help("Text: .txt, .jsonl or .bin; repeatable").required(true),
            "batch_size" => option.help("Sequences at a time"),
            "seq_len" => option.help("Longest context"),
            "precision" => option.default_value("fp32"),
            _ => option,
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a number above 0".to_owned())
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.verbose.start();
    let Options { model, data, adapting, settings, .. } = arguments.flags.options()?;
    let model = model.ok_or_else(|| missing("model"))?;
    let request = Evaluation {
        model: model.clone(),
        adapter: adapting.adapter,
        data,
        batch_size: settings.batch_size,
        seq_len: settings.seq_len,
        precision: settings.precision,
        gemm: settings.gemm,
        format: arguments.format,
        device: settings.device,
        kernels: settings.kernels,
        heading: !arguments.json,
    };
    let score = scored(&request)?;
    let baseline = match &arguments.below {
        Some(model) => Some((model, scored(&Evaluation { model: model.clone(), adapter: None, ..request.clone() })?)),
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
    score.check(&model, demands)?;
    if let Some((below, baseline)) = &baseline {
        score.check_below(&model, baseline, below)?;
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
