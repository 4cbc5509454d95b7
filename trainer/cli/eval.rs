//! `precast eval`

use std::path::PathBuf;

use clap::Args;
use precast_plan::{Gemm, Precision};
use precast_system::progress::{Progress, Unit};
use precast_system::say;

use super::{print_as, print_json};
use crate::base::load_trace::Verbose;
use crate::device::frozen::Forward;
use crate::options::groups::values::frozen_format;
use crate::options::{MostKl, WeightFormat};
use crate::programs::compare::compare;
use crate::programs::evaluate::{Evaluation, evaluate};
use crate::programs::failure::Failure;
use crate::programs::teacher_distance::distance;
use crate::run::certificate::Certificate;
use crate::run::perplexity::{Demands, Score};

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    evaluation: Evaluation,
    /// Compare predictions in --format with those of the same weights in this form, bf16 or stored: mean and largest
    /// KL, nats a token, and the share of tokens that both choose first; in --precision bf16 unless another is given
    #[arg(long, value_parser = frozen_format, value_name = "FORM", conflicts_with_all = ["below", "adapter"])]
    against: Option<WeightFormat>,
    /// Write the measurement of --against to this file: a certificate, for --teacher-certificate of distill
    #[arg(long, requires = "against", value_name = "FILE")]
    out: Option<PathBuf>,
    /// Measure the distance from the teacher in this cache, on --data that it holds: mean and largest KL from the
    /// teacher, nats a token, the share of tokens that both choose first, and both perplexities
    ///
    /// Data are read as distill reads --eval-data, whose cache `precast cache --eval-data` makes; in the precision of
    /// the cache.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["against", "below"])]
    teacher_cache: Option<PathBuf>,
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

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    arguments.verbose.start();
    let mut request = arguments.evaluation.clone();
    request.forward.heading = !arguments.json;
    let model = request.forward.model.clone();
    let demands = Demands { untrained: arguments.untrained, max_perplexity: arguments.max_perplexity };
    if let Some(against) = arguments.against {
        request.forward.precision.get_or_insert(Precision::Bf16);
        return certify(&arguments, &request, against, demands);
    }
    if let Some(cache) = &arguments.teacher_cache {
        let measured = with_progress(|progress| distance(&request, cache, progress))?;
        print_as(arguments.json, &measured, measured);
        return Ok(measured.score.check(&model, demands)?);
    }
    let score = scored(&request)?;
    let baseline = arguments.below.as_ref().map(|model| {
        let forward = Forward { model: model.clone(), adapter: None, ..request.forward.clone() };
        scored(&Evaluation { forward, ..request.clone() }).map(|score| (model, score))
    });
    let baseline = baseline.transpose()?;
    if arguments.json {
        let mut json = serde_json::to_value(score).expect("plain data serializes");
        if let Some((model, baseline)) = &baseline {
            json["below"] = serde_json::to_value(baseline).expect("plain data serializes");
            json["below"]["model"] = model.display().to_string().into();
        }
        print_json(&json);
    } else {
        print(&score, "");
        if let Some((model, baseline)) = &baseline {
            print(baseline, &format!("{}: ", model.display()));
        }
    }
    score.check(&model, demands)?;
    if let Some((below, baseline)) = &baseline {
        score.check_alike(&model, baseline, below)?;
        score.check_below(&model, baseline, below)?;
    }
    Ok(())
}

/// Scores a model, and shows progress.
fn scored(request: &Evaluation) -> Result<Score, Failure> {
    with_progress(|progress| evaluate(request, progress))
}

fn with_progress<T>(work: impl FnOnce(&mut dyn FnMut(usize, usize)) -> Result<T, Failure>) -> Result<T, Failure> {
    let progress = Progress::start("scoring", Unit::Things("batches"));
    work(&mut |done, all| progress.set(done as u64, all as u64))
}

/// Measures a model in two forms, and writes what that gives.
fn certify(
    arguments: &Arguments,
    request: &Evaluation,
    against: WeightFormat,
    demands: Demands,
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
        return Err(Failure::usage("--against compares the bundle's GEMMs: leave --gemm cublas out"));
    }
    arguments.out.as_deref().map_or(Ok(()), Certificate::check_replaceable)?;
    let certificate = with_progress(|progress| compare(request, against, progress))?;
    let measured = certificate.measured.check(MostKl::None)?;
    let (nll, tokens) = (measured.perplexity.ln(), measured.tokens);
    let score = Score::new(nll * tokens as f64, tokens, certificate.vocab, certificate.ids_sha256);
    score.check(&request.forward.model, demands)?;
    if let Some(out) = &arguments.out {
        certificate.write(out)?;
    }
    print_as(arguments.json, &certificate, format_args!("{format} against {against}: {measured}"));
    Ok(())
}

fn print(score: &Score, of: &str) {
    say!("{of}nll {:.4} nats a token, perplexity {:.3}, {} tokens", score.nll, score.perplexity, score.tokens);
}
