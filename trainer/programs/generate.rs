//! `precast generate`: what a model goes on with, the likeliest token each time.
//!
//! Simple: the whole sequence is computed again for each token, by the plan of an evaluation, sealed before the first. Attention is
//! causal, so what stands behind the last token changes nothing.

use std::sync::Arc;

use chrono::NaiveDate;
use clap::Args;
use half::bf16;
use minijinja::Value;
use precast_kernels::{Dtype, Format};
use precast_plan::evaluation;
use precast_system::terminal::tell;
use serde::Serialize;

use crate::base::notes::note;
use crate::device::frozen::Forward;
use crate::inputs::chat::{Chat, date};
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::DataError;
use crate::inputs::tokenizer::{SpecialTokens, Tokenizer};
use crate::programs::failure::Failure;
use crate::run::outcome::RunFault;

/// What to generate.
#[derive(Args, Clone, Debug)]
pub struct Generation {
    #[command(flatten)]
    pub forward: Forward,
    /// Message of a user to the model, by its chat template
    #[arg(long, value_name = "TEXT")]
    pub prompt: String,
    /// Take the prompt as the beginning of a text instead
    #[arg(long)]
    pub raw: bool,
    /// Tokens to generate, at most
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub max_tokens: u32,
    /// Date that strftime_now returns in chat templates, YYYY-MM-DD; undefined without it
    #[arg(long, value_name = "DATE", value_parser = date)]
    pub chat_date: Option<NaiveDate>,
}

/// Result of a generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Generated {
    pub prompt_ids: Vec<u32>,
    /// With the token that ends it, if one does.
    pub ids: Vec<u32>,
    /// Without special tokens.
    pub text: String,
}

/// Goes on from a prompt.
///
/// # Errors
/// [`Failure`].
pub fn generate(request: &Generation) -> Result<Generated, Failure> {
    let forward = &request.forward;
    let opened = forward.read()?;
    let (model, config) = (&opened.model, opened.model.config());
    let none = || DataError::no_tokenizer(&forward.model);
    let tokenizer = Arc::clone(model.tokenizer()?.ok_or_else(none)?);
    let prompt_ids = prompt(request, model, &tokenizer)?;
    let ends = model.eos_tokens();
    let prompt_len = prompt_ids.len() as u32;
    let window = window(prompt_len, request.max_tokens, config.max_positions)?;
    let first = |window| evaluation::first_logits(window, config, forward.precision());
    check_window(prompt_len, window, first)?;

    let (plan, mut sealed) = forward.open(&opened, &[], (1, window))?;
    if forward.heading {
        tell("");
    }

    let logits = plan.plan.tensor("head.logits").expect("an evaluation has logits");
    let vocab = u64::from(config.vocab);
    let mut ids = prompt_ids.clone();
    while (ids.len() as u32) < window {
        let mut words = ids.clone();
        words.resize(window as usize, 0);
        sealed.score([plan.ids, plan.targets], &words, &words)?;
        let row = ids.len() as u64 - 1 - u64::from(first(window));
        let row = sealed.read(logits.slice(row * vocab, vocab))?;
        let broken = |(id, logit)| {
            RunFault(format!(
                "{}: after {} tokens the logit of token {id} is {logit}. The weights are damaged or activations overflow: try \
                 --precision fp32, and check the model with precast eval",
                request.forward.model.display(),
                ids.len()
            ))
        };
        let next = likeliest(&row, logits.format).map_err(broken)?;
        ids.push(next);
        if ends.contains(&next) {
            break;
        }
    }
    let ids = ids.split_off(prompt_ids.len());
    let text = tokenizer.decode(&ids).map_err(DataError::tokenizer(&request.forward.model))?;
    Ok(Generated { prompt_ids, ids, text })
}

/// The ids of the prompt: as a user's message by the model's chat template, or as it is.
fn prompt(request: &Generation, model: &Checkpoint, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
    let template = if request.raw { None } else { model.chat_template(request.chat_date)? };
    let path = &request.forward.model;
    let ids = match template {
        Some(template) => {
            let message = Value::from_pairs([("role", "user"), ("content", &request.prompt)]);
            let unfit = |fault| Failure::usage(format!("--prompt: {fault}; --raw takes it as it is"));
            tokenizer.encode(&template.prompt(&Value::from(vec![message])).map_err(unfit)?, SpecialTokens::Omit)
        }
        None => {
            if !request.raw {
                note(format_args!("{}: the prompt is the beginning of a text", Chat::lacked_by(path)));
            }
            tokenizer.encode(&request.prompt, SpecialTokens::Add)
        }
    };
    let ids = ids.map_err(DataError::tokenizer(path))?;
    let vocab = model.config().vocab;
    match ids.iter().enumerate().find(|(_, id)| **id >= vocab) {
        Some((index, id)) => Err(DataError::vocabulary(path, index as u64, *id, vocab).into()),
        None if ids.is_empty() => Err(Failure::usage("--prompt has no token to go on from")),
        None => Ok(ids),
    }
}

/// Tokens of the prompt and what follows it: no more than the model has positions.
fn window(prompt: u32, max_tokens: u32, positions: u32) -> Result<u32, Failure> {
    if prompt >= positions {
        let message =
            format!("--prompt is {prompt} tokens, and the model takes {positions} with its answer: shorten it");
        return Err(Failure::usage(message));
    }
    Ok(prompt.saturating_add(max_tokens).min(positions))
}

/// Refuses a window of which the logits of the prompt's last token are not in memory with those of all that follow: the head computes
/// those of large vocabularies in chunks of tokens, of which the last one stays.
fn check_window(prompt: u32, window: u32, first: impl Fn(u32) -> u32) -> Result<(), Failure> {
    let fits = |window: &u32| first(*window) < prompt;
    if fits(&window) {
        return Ok(());
    }
    let asked = window - prompt;
    let remedy = match (prompt + 1..window).rev().find(fits) {
        Some(most) => format!("lower --max-tokens to {}", most - prompt),
        None => "shorten the prompt".to_owned(),
    };
    Err(Failure::usage(format!(
        "--max-tokens {asked}: only the last chunk of logits is kept in memory, and it does not reach back to the end of a prompt \
         of {prompt} tokens: {remedy}"
    )))
}

/// The first of the largest values; else the first that is not finite.
fn likeliest(row: &[u8], format: Format) -> Result<u32, (u32, f32)> {
    let values: Vec<f32> = match format {
        Format::Dense(Dtype::F32) => bytemuck::pod_collect_to_vec(row),
        _ => bytemuck::pod_collect_to_vec::<u8, bf16>(row).into_iter().map(f32::from).collect(),
    };
    let mut best = (0, f32::NEG_INFINITY);
    for (id, value) in (0..).zip(values) {
        if !value.is_finite() {
            return Err((id, value));
        }
        if value > best.1 {
            best = (id, value);
        }
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use precast_kernels::Arch;
    use precast_plan::{EvaluationPlan, ModelConfig, Precision};

    use super::*;

    #[test]
    fn the_first_of_the_largest_is_taken() {
        let values = [-1.0, 3.0, 2.0, 3.0];
        assert_eq!(likeliest(bytemuck::cast_slice(&values), Format::Dense(Dtype::F32)), Ok(1));
        let narrow = values.map(bf16::from_f32);
        assert_eq!(likeliest(bytemuck::cast_slice(&narrow), Format::Dense(Dtype::Bf16)), Ok(1));
    }

    #[test]
    fn nothing_is_likeliest_among_what_is_no_number() {
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let found = likeliest(bytemuck::cast_slice(&[1.0, broken, 2.0]), Format::Dense(Dtype::F32));
            assert!(matches!(found, Err((1, _))), "{found:?}");
            let narrow = [1.0, broken, 2.0].map(bf16::from_f32);
            assert!(matches!(likeliest(bytemuck::cast_slice(&narrow), Format::Dense(Dtype::Bf16)), Err((1, _))));
        }
    }

    #[test]
    fn an_answer_ends_where_the_positions_do() {
        assert_eq!(
            [(3, 9), (3, 61), (3, 62), (63, 9)].map(|(prompt, most)| window(prompt, most, 64).unwrap()),
            [12, 64, 64, 64]
        );
        let message = window(64, 1, 64).unwrap_err().to_string();
        assert!(message.contains("--prompt is 64 tokens, and the model takes 64"), "{message}");
    }

    /// Halves of what is more than 8 tokens.
    #[test]
    fn an_answer_begins_in_the_last_chunk_of_the_head() {
        let first = |window: u32| if window > 8 { window / 2 } else { 0 };
        assert!(check_window(1, 8, first).is_ok() && check_window(7, 13, first).is_ok());
        let message = check_window(5, 12, first).unwrap_err().to_string();
        assert!(
            message.starts_with("--max-tokens 7: only the last chunk of logits")
                && message.ends_with("a prompt of 5 tokens: lower --max-tokens to 4"),
            "{message}"
        );
        assert!(check_window(5, 5 + 4, first).is_ok());
        let message = check_window(9, 20, |window| window - 1).unwrap_err().to_string();
        assert!(message.ends_with("shorten the prompt"), "{message}");
    }

    /// The logits that stay of a plan are those of the rest of its tokens.
    #[test]
    fn what_stays_of_logits_is_the_last_chunk() {
        let config = |vocab: u32| {
            let text = include_str!("../../tests/models/tiny.json");
            ModelConfig { vocab, max_positions: 1 << 16, ..ModelConfig::from_json(text).unwrap() }
        };
        for (vocab, window) in [(96, 64), (151_936, 1100), (1 << 20, 300)] {
            let config = config(vocab);
            let plan = EvaluationPlan::new(&config, (1, window), Precision::Fp32, Arch::Sim);
            let plan = plan.unwrap_or_else(|error| panic!("{vocab}: {error}")).plan;
            let chunk = (plan.tensor("head.logits").unwrap().elems / u64::from(vocab)) as u32;
            let first = evaluation::first_logits(window, &config, Precision::Fp32);
            assert!(
                first.is_multiple_of(chunk) && (first + 1..=first + chunk).contains(&window),
                "{vocab}: {first}, {chunk}"
            );
            assert_eq!(first == 0, window <= chunk);
        }
    }
}
