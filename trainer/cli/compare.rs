//! `precast eval compare`

use std::path::PathBuf;

use clap::Args;
use precast_plan::Gemm;
use precast_system::progress::{Progress, Unit};

use super::output::print_as;
use crate::base::load_trace::Verbose;
use crate::options::groups::values::frozen_format;
use crate::options::{MostKl, WeightFormat};
use crate::programs::compare::compare;
use crate::programs::evaluate::Evaluation;
use crate::run::certificate::Certificate;
use crate::run::failure::Failure;
use crate::run::perplexity::{Demands, Score};

#[derive(Args)]
#[command(
    mut_arg("adapter", |option| option.hide(true).conflicts_with("against")),
    mut_arg("precision", |option| option.default_value("bf16").help("Arithmetic: fp32 or bf16"))
)]
pub struct Arguments {
    #[command(flatten)]
    evaluation: Evaluation,
    /// Compare predictions in --format with those of the same weights in this form, bf16 or stored: mean and largest
    /// KL, nats a token, and the share of tokens that both choose first
    #[arg(long, value_parser = frozen_format, value_name = "FORM")]
    against: WeightFormat,
    /// Write the measurement to this file: a certificate, for --teacher-certificate of distill
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    demands: Demands,
    #[command(flatten)]
    verbose: Verbose,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Measures a model in two forms, and writes what that gives.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { evaluation: mut request, against, out, demands, verbose, json } = arguments;
    verbose.start();
    request.forward.heading = !json;
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
    out.as_deref().map_or(Ok(()), Certificate::check_replaceable)?;
    let certificate = with_progress(|progress| compare(&request, against, progress))?;
    let measured = certificate.measured.check(MostKl::None)?;
    let (nll, tokens) = (measured.perplexity.ln(), measured.tokens);
    let score = Score::new(nll * tokens as f64, tokens, certificate.vocab, certificate.ids_sha256);
    score.check(&request.forward.model, demands)?;
    if let Some(out) = &out {
        certificate.write(out)?;
    }
    print_as(json, &certificate, format_args!("{format} against {against}: {measured}"));
    Ok(())
}

/// Shows how many batches are done of work that scores them.
pub(super) fn with_progress<T>(
    work: impl FnOnce(&mut dyn FnMut(usize, usize)) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let progress = Progress::start("scoring", Unit::Things("batches"));
    work(&mut |done, all| progress.set(done as u64, all as u64))
}
