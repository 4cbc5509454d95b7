//! `precast eval`

use std::path::{Path, PathBuf};

use clap::{Arg, Args};
use indicatif::{ProgressBar, ProgressStyle};
use precast_plan::{Gemm, Precision};
use precast_system::say;

use super::print_json;
use crate::base::verbose::Verbose;
use crate::device::frozen::Forward;
use crate::options::MostKl;
use crate::options::WeightFormat;
use crate::options::{Flags, Options, Takes, exact_precision, frozen_format, missing};
use crate::programs::compare::{Forms, compare};
use crate::programs::evaluate::{Evaluation, evaluate};
use crate::programs::failure::Failure;
use crate::run::certificate::Certificate;
use crate::run::score::{Demands, Score};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    flags: Flags<Eval>,
    /// How the weights live on the device. At the same bits: bf16 (the precision), stored (matrices as a GGUF file holds them) or
    /// auto (bf16 where that fits into the device's memory, else stored); at others: int8, in --precision bf16
    #[arg(long, default_value_t = WeightFormat::Auto, value_name = "FORM")]
    format: WeightFormat,
    /// Measure how far the predictions in --format are from those of the same weights in this form, bf16 or stored: mean and
    /// largest KL, nats a token, and how often both choose the same token first; in --precision bf16 unless another is given
    #[arg(long, value_parser = frozen_format, value_name = "FORM", conflicts_with_all = ["below", "adapter"])]
    against: Option<WeightFormat>,
    /// Write what --against measures to this file: a certificate, for --teacher-certificate of distill
    #[arg(long, requires = "against", value_name = "FILE")]
    out: Option<PathBuf>,
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
        "data_field",
        "chat_date",
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
            "data" => {
                option.help("Data: .txt, .jsonl, .parquet or .bin, or directories of them; repeatable").required(true)
            }
            "batch_size" => option.help("Sequences at a time"),
            "seq_len" => option.help("Longest context"),
            "precision" => option.help("Arithmetic: fp32 or bf16").default_value("fp32").value_parser(exact_precision),
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
    let Options { model, data, adapting, settings, given, .. } = arguments.flags.options()?;
    let model = model.ok_or_else(|| missing("model"))?;
    // 8-bit products give bf16.
    let rounds = arguments.format == WeightFormat::Int8 || arguments.against.is_some();
    let precision = if rounds && !given.contains_key("precision") { Precision::Bf16 } else { settings.precision };
    if arguments.format == WeightFormat::Int8 && adapting.adapter.is_some() {
        return Err(Failure::usage("--format int8 computes no adapters: leave --adapter out, or use --format bf16"));
    }
    let request = Evaluation {
        forward: Forward {
            model: model.clone(),
            adapter: adapting.adapter,
            precision,
            gemm: settings.gemm,
            format: arguments.format,
            device: settings.device,
            kernels: settings.kernels,
            heading: !arguments.json,
        },
        data,
        data_field: settings.data_field,
        chat_date: settings.chat_date,
        batch_size: settings.batch_size,
        seq_len: settings.seq_len,
    };
    if let Some(against) = arguments.against {
        let demands = Demands { untrained: arguments.untrained, max_perplexity: arguments.max_perplexity };
        return certify(&request, against, arguments.out.as_deref(), demands, arguments.json);
    }
    let score = scored(&request)?;
    let baseline = match &arguments.below {
        Some(model) => {
            let forward = Forward { model: model.clone(), adapter: None, ..request.forward.clone() };
            Some((model, scored(&Evaluation { forward, ..request.clone() })?))
        }
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
    with_bar(|progress| evaluate(request, progress))
}

fn with_bar<T>(work: impl FnOnce(&mut dyn FnMut(usize, usize)) -> Result<T, Failure>) -> Result<T, Failure> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} batches  {elapsed}").expect("a valid template");
    let bar = ProgressBar::new(0).with_style(style);
    let done = work(&mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    Ok(done)
}

/// Measures a model in two forms, and writes what that gives.
fn certify(
    request: &Evaluation,
    against: WeightFormat,
    out: Option<&Path>,
    demands: Demands,
    json: bool,
) -> Result<(), Failure> {
    let format = request.forward.format;
    if format == WeightFormat::Auto {
        return Err(Failure::usage("--against: name what is measured, too: --format int8, bf16 or stored"));
    }
    if format == against {
        return Err(Failure::usage(format!(
            "--against {against}: --format is that too, and no model is far from itself"
        )));
    }
    if request.forward.gemm == Gemm::Cublas {
        return Err(Failure::usage("--against compares the bundle's products: leave --gemm cublas out"));
    }
    out.map_or(Ok(()), Certificate::check_replaceable)?;
    let certificate = with_bar(|progress| compare(request, Forms { format, against }, progress))?;
    let measured = certificate.measured.check(MostKl::None)?;
    let (nll, tokens) = (measured.perplexity.ln(), measured.tokens);
    let score = Score::new(nll * tokens as f64, tokens, certificate.vocab, certificate.ids_sha256);
    score.check(&request.forward.model, demands)?;
    if let Some(out) = out {
        certificate.write(out)?;
    }
    match json {
        true => print_json(&certificate),
        false => say!("{format} against {against}: {measured}"),
    }
    Ok(())
}

fn print(score: &Score, of: &str) {
    say!("{of}nll {:.4} nats a token, perplexity {:.3}, {} tokens", score.nll, score.perplexity, score.tokens);
}
