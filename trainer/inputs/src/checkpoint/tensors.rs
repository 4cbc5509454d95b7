//! Whether a model holds the tensors of its configuration, all of them and no others: a tensor that is skipped
//! would change what the model computes.

use std::collections::BTreeSet;

use precast_kernels::Dtype;
use precast_plan::family::Bias;
use precast_plan::{ModelConfig, Parameter};

use super::store::{EMBEDDING, LM_HEAD};
use super::{Checkpoint, CheckpointError, Scratch, Weights};
use crate::base::lines::bounded;

/// Problems that are listed.
const LISTED: usize = 20;

/// Checks names and shapes of all tensors, and the values of those that only say again what follows from others.
///
/// # Errors
/// [`CheckpointError`] that lists what is wrong.
pub(super) fn check(checkpoint: &Checkpoint, parameters: &[Parameter]) -> Result<(), CheckpointError> {
    let mut problems: Vec<String> = parameters.iter().filter_map(|parameter| problem(checkpoint, parameter)).collect();
    let expected: BTreeSet<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    for name in checkpoint.tensors().names().filter(|name| !expected.contains(name)) {
        problems.extend(beyond(checkpoint, name)?);
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(CheckpointError::tensors(&checkpoint.path, &bounded(problems, LISTED)))
}

fn problem(checkpoint: &Checkpoint, parameter: &Parameter) -> Option<String> {
    match checkpoint.tensors().shape(&parameter.name) {
        None => Some(format!("  {} is missing", parameter.name)),
        Some(shape) if shape != parameter.shape => {
            Some(format!("  {} is {shape:?}, config.json says {:?}", parameter.name, parameter.shape))
        }
        Some(_) => None,
    }
}

/// What is wrong with a tensor that the configuration does not name; nothing if it says again what follows from it.
fn beyond(checkpoint: &Checkpoint, name: &str) -> Result<Option<String>, CheckpointError> {
    let config = checkpoint.config();
    if name == LM_HEAD && config.tied {
        return Ok(match same_as_embedding(checkpoint)? {
            true => None,
            false => Some(format!(
                "  {name} is not {EMBEDDING}, and config.json says tie_word_embeddings: set that to false to use both"
            )),
        });
    }
    if is_inv_freq(name, config.depth()) {
        return inv_freq(checkpoint, name);
    }
    let why = match name.rsplit_once('.') {
        Some((_, "bias")) => bias(config, name),
        _ if layer(name).is_some_and(|layer| layer >= config.depth()) => {
            format!("config.json has {} layers", config.depth())
        }
        _ => "the configuration does not name it".to_owned(),
    };
    Ok(Some(format!("  {name} is not expected: {why}")))
}

fn bias(config: &ModelConfig, name: &str) -> String {
    let family = config.family;
    let bias = match name {
        name if name.contains(".o_proj.") => family.o_bias,
        name if name.contains(".self_attn.") => family.qkv_bias,
        _ => family.mlp_bias,
    };
    match bias {
        Bias::Configured(setting) if name.contains("_proj.") => format!("config.json does not say {setting}: true"),
        _ => format!("{family} has no bias there"),
    }
}

/// The layer in a tensor's name.
fn layer(name: &str) -> Option<u32> {
    name.strip_prefix("model.layers.")?.split_once('.')?.0.parse().ok()
}

/// Whether it is the rotary embedding's frequencies, which older files hold, of a layer that there is or of the model.
fn is_inv_freq(name: &str, layers: u32) -> bool {
    let of_layer = name.ends_with(".self_attn.rotary_emb.inv_freq") && layer(name).is_some_and(|layer| layer < layers);
    of_layer || name == "model.rotary_emb.inv_freq"
}

/// A tensor that is there, to be read whole.
fn whole(name: &str, shape: &[u64]) -> Parameter {
    Parameter { name: name.to_owned(), shape: shape.to_vec() }
}

fn same_as_embedding(checkpoint: &Checkpoint) -> Result<bool, CheckpointError> {
    let (Some(head), Some(embedding)) = (checkpoint.tensors().shape(LM_HEAD), checkpoint.tensors().shape(EMBEDDING))
    else {
        return Ok(false);
    };
    if head != embedding {
        return Ok(false);
    }
    // Nothing is copied where a file holds both as they are compared.
    let dtype = checkpoint.tensors().stored(EMBEDDING).unwrap_or(Dtype::F32);
    let [mut one, mut other] = [Scratch::default(), Scratch::default()];
    Ok(checkpoint.read(&whole(LM_HEAD, head), dtype.into(), &mut one)?
        == checkpoint.read(&whole(EMBEDDING, embedding), dtype.into(), &mut other)?)
}

/// Compares stored frequencies with those of the configuration, to the precision they are stored in.
fn inv_freq(checkpoint: &Checkpoint, name: &str) -> Result<Option<String>, CheckpointError> {
    let config = checkpoint.config();
    let shape = checkpoint.tensors().shape(name).unwrap_or_default();
    let half = u64::from(config.head_dim / 2);
    if shape != [half] {
        return Ok(Some(format!("  {name} is {shape:?}, head_dim {} gives [{half}]", config.head_dim)));
    }
    let mut scratch = Scratch::default();
    let bytes = checkpoint.read(&whole(name, shape), Dtype::F32.into(), &mut scratch)?;
    let stored: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
    let expected = &config.rope_frequencies()[0];
    // Roundings of the computation in f32; else bf16 keeps 8 bits, and f16 no less than 2^-25 of one.
    let (relative, absolute) = match checkpoint.tensors().stored(name) {
        Some(Dtype::F32) => (1e-5, 0.0),
        _ => (2f64.powi(-8), 2f64.powi(-25)),
    };
    let near = |(i, stored): (usize, &f32)| {
        let (stored, expected) = (f64::from(*stored), f64::from(expected[i]));
        (stored - expected).abs() <= expected * relative + absolute
    };
    match stored.iter().enumerate().find(|pair| !near(*pair)) {
        None => Ok(None),
        Some((i, found)) => {
            let theta = config.ropes[0].theta;
            Ok(Some(format!("  {name}[{i}] is {found}, rope_theta {theta} gives {}", expected[i])))
        }
    }
}
