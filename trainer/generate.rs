//! `precast generate`: what a model goes on with, the likeliest token each time.
//!
//! Simple: the whole sequence is computed again for each token, by the plan of an evaluation, sealed before the first. Attention is
//! causal, so what stands behind the last token changes nothing.

use std::path::PathBuf;
use std::sync::Arc;

use half::bf16;
use minijinja::Value;
use precast_fatbins::say;
use precast_kernels::{Dtype, Format};
use precast_plan::{Gemm, Precision, evaluation};
use serde::Serialize;

use crate::adapter::Adapter;
use crate::bundle::Kernels;
use crate::chat::Date;
use crate::checkpoint::Checkpoint;
use crate::config::DeviceChoice;
use crate::data::DataError;
use crate::device;
use crate::error::Failure;
use crate::forward::Forward;
use crate::tokenizer::Tokenizer;
use crate::weight_format::WeightFormat;

/// What to generate.
#[derive(Clone, Debug)]
pub struct Generation {
    pub model: PathBuf,
    /// An adapter of it.
    pub adapter: Option<PathBuf>,
    pub prompt: String,
    /// Whether the prompt is the beginning of a text, and no message of a user.
    pub raw: bool,
    /// Tokens, at most.
    pub max_tokens: u32,
    pub chat_date: Option<Date>,
    pub precision: Precision,
    pub gemm: Gemm,
    /// How the weights live on the device.
    pub format: WeightFormat,
    pub device: DeviceChoice,
    pub kernels: Kernels,
    /// Whether device, kernels and model are printed first.
    pub heading: bool,
}

/// What came of it.
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
    let cublas = device::cublas(request.gemm, request.device)?;
    let model = Checkpoint::open(&request.model)?;
    let config = model.config();
    let adapter = request.adapter.as_ref().map(|path| Adapter::open(path, (&request.model, config))).transpose()?;
    let none = || DataError::NoTokenizer { path: request.model.clone() };
    let tokenizer = Arc::clone(model.tokenizer()?.ok_or_else(none)?);
    let prompt_ids = prompt(request, &model, &tokenizer)?;
    let ends = model.eos_tokens();
    let asked = prompt_ids.len() as u64 + u64::from(request.max_tokens);
    let window = asked.min(config.max_positions.into()) as u32;
    if prompt_ids.len() as u32 >= window {
        return Err(Failure::Usage(format!(
            "--prompt is {} tokens, and the model takes {} with its answer: shorten it",
            prompt_ids.len(),
            config.max_positions
        )));
    }

    let forward = Forward {
        path: &request.model,
        model: &model,
        adapter: adapter.as_ref(),
        data: &[],
        shape: (1, window),
        precision: request.precision,
        gemm: request.gemm,
        format: request.format,
        device: request.device,
        kernels: &request.kernels,
        heading: request.heading,
    };
    let (plan, mut sealed) = forward.open(cublas)?;
    if request.heading {
        say!("");
    }

    // The head computes logits in chunks of tokens, of which the last one stays.
    let logits = plan.plan.tensor("head.logits").expect("an evaluation has logits");
    let vocab = u64::from(config.vocab);
    let chunk = (logits.elems / vocab) as u32;
    let first = (window - 1) / chunk * chunk;
    let mut ids = prompt_ids.clone();
    if (ids.len() as u32) <= first {
        return Err(Failure::Usage(format!(
            "--prompt and --max-tokens are {window} tokens together, and {chunk} are generated from at a time: lower --max-tokens"
        )));
    }
    while (ids.len() as u32) < window {
        let mut words = ids.clone();
        words.resize(window as usize, 0);
        sealed.write(plan.ids, bytemuck::cast_slice(&words))?;
        sealed.write(plan.targets, bytemuck::cast_slice(&words))?;
        sealed.run(evaluation::SCORE)?;
        let row = ids.len() as u64 - 1 - u64::from(first);
        let row = sealed.read(logits.slice(row * vocab, vocab))?;
        let next = likeliest(&row, logits.format);
        ids.push(next);
        if ends.contains(&next) {
            break;
        }
    }
    let ids = ids.split_off(prompt_ids.len());
    let failed = |reason| DataError::Tokenizer { path: request.model.clone(), reason };
    let text = tokenizer.decode(&ids).map_err(failed)?;
    Ok(Generated { prompt_ids, ids, text })
}

/// The ids of the prompt: as a user's message by the model's chat template, or as it is.
fn prompt(request: &Generation, model: &Checkpoint, tokenizer: &Tokenizer) -> Result<Vec<u32>, Failure> {
    let template = if request.raw { None } else { model.chat_template(request.chat_date)? };
    let path = || request.model.clone();
    let failed = |reason| Failure::from(DataError::Tokenizer { path: path(), reason });
    let ids = match template {
        Some(template) => {
            let message = Value::from_pairs([("role", "user"), ("content", &request.prompt)]);
            let text = template.prompt(&Value::from(vec![message]));
            tokenizer.encode_plain(
                &text.map_err(|fault| Failure::Usage(format!("--prompt: {fault}; --raw takes it as it is")))?,
            )
        }
        None => {
            if !request.raw {
                eprintln!("note: the model has no chat template: the prompt is the beginning of a text");
            }
            tokenizer.encode(&request.prompt)
        }
    };
    let ids = ids.map_err(failed)?;
    let vocab = model.config().vocab;
    match ids.iter().enumerate().find(|(_, id)| **id >= vocab) {
        Some((index, id)) => Err(DataError::Vocabulary { path: path(), index: index as u64, id: *id, vocab }.into()),
        None if ids.is_empty() => Err(Failure::Usage("--prompt has no token to go on from".to_owned())),
        None => Ok(ids),
    }
}

/// The first of the largest values.
fn likeliest(row: &[u8], format: Format) -> u32 {
    let values: Vec<f32> = match format {
        Format::Dense(Dtype::F32) => bytemuck::pod_collect_to_vec(row),
        _ => bytemuck::pod_collect_to_vec::<u8, bf16>(row).into_iter().map(f32::from).collect(),
    };
    let best = values
        .iter()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (id, value)| if *value > best.1 { (id, *value) } else { best });
    best.0 as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_is_taken() {
        let values = [f32::NAN, -1.0, 3.0, 2.0, 3.0];
        assert_eq!(likeliest(bytemuck::cast_slice(&values), Format::Dense(Dtype::F32)), 2);
        let narrow = values.map(bf16::from_f32);
        assert_eq!(likeliest(bytemuck::cast_slice(&narrow), Format::Dense(Dtype::Bf16)), 2);
    }
}
