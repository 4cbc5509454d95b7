//! `precast eval`

use std::path::PathBuf;

use clap::{Args, Subcommand};
use precast_system::say;

use super::compare::{self, with_progress};
use super::either::Either;
use super::help;
use super::output::{print_as, print_json};
use crate::base::load_trace::Verbose;
use crate::device::frozen::Forward;
use crate::options::groups::values::model;
use crate::programs::evaluate::{Evaluation, evaluate};
use crate::programs::teacher_distance::distance;
use crate::run::failure::Failure;
use crate::run::perplexity::{Demands, Score};

pub type Arguments = Either<Evaluated, What>;

#[derive(Subcommand)]
pub enum What {
    /// Measure how far predictions in --format are from those of the same weights in an exact form
    #[command(mut_args(help::plain))]
    Compare(compare::Arguments),
}

/// A model to score.
#[derive(Args)]
pub struct Evaluated {
    #[command(flatten)]
    evaluation: Evaluation,
    /// Measure the distance from the teacher in this cache, on --data that it holds: mean and largest KL from the
    /// teacher, nats a token, the share of tokens that both choose first, and both perplexities
    ///
    /// Data are read as distill reads --eval-data, whose cache `precast cache --eval-data` makes; in the precision of
    /// the cache.
    #[arg(long, value_name = "DIR", conflicts_with = "below")]
    teacher_cache: Option<PathBuf>,
    #[command(flatten)]
    demands: Demands,
    /// Score this model on the same data too, and fail unless --model is better
    #[arg(long, value_name = "PATH", value_parser = model())]
    below: Option<PathBuf>,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments {
        Either::Itself(arguments) => score(arguments),
        Either::Sub(What::Compare(arguments)) => compare::run(arguments),
    }
}

fn score(arguments: Evaluated) -> Result<(), Failure> {
    let Evaluated { evaluation: mut request, teacher_cache, demands, below, verbose, json } = arguments;
    verbose.start();
    request.forward.heading = !json;
    let model = request.forward.model.clone();
    if let Some(cache) = &teacher_cache {
        let measured = with_progress(|progress| distance(&request, cache, progress))?;
        print_as(json, &measured, measured);
        return Ok(measured.score.check(&model, demands)?);
    }
    let score = with_progress(|progress| evaluate(&request, progress))?;
    let baseline = below.map(|model| {
        let forward = Forward { model: model.clone(), adapter: None, ..request.forward.clone() };
        let request = Evaluation { forward, ..request };
        with_progress(|progress| evaluate(&request, progress)).map(|score| (model, score))
    });
    let baseline = baseline.transpose()?;
    if json {
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

fn print(score: &Score, of: &str) {
    say!("{of}nll {:.4} nats a token, perplexity {:.3}, {} tokens", score.nll, score.perplexity, score.tokens);
}
