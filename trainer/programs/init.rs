//! `precast init`: a new student, of random weights or of chosen layers of a teacher.

use std::path::{Path, PathBuf};

use precast_plan::family::Windows;
use precast_plan::{LayerConfig, ModelConfig, Parameter, Parameters, Precision};
use precast_system::files::Existing;

use crate::inputs::checkpoint::{
    Checkpoint, CheckpointError, ModelSource, Scratch, Weights, config_json, gguf, stored, write_gguf, write_model,
};
use crate::inputs::random::Random;
use crate::run::failure::Failure;
use crate::run::out::check_directory;

/// Writes a model of random weights: matrices normal with the configuration's `initializer_range`, norms neutral,
/// biases zero. The same seed gives the same bytes on any machine. [`Existing::Replace`] replaces a model that Precast
/// wrote.
///
/// # Errors
/// [`Failure`] where the configuration cannot be followed or the directory cannot be written.
pub fn random(
    config: &Path,
    tokenizer: Option<&Path>,
    seed: u64,
    precision: Precision,
    out: &Path,
    existing: Existing,
) -> Result<(), Failure> {
    let inputs: Vec<&Path> = std::iter::once(config).chain(tokenizer).collect();
    let out = check_directory(out, existing, &inputs)?;
    let unfit = |error| CheckpointError::of(config, error);
    let (weights, json) = Random::new(&config_json(config)?, seed).map_err(unfit)?;
    let tokenizer = tokenizer.map(Checkpoint::open).transpose()?;
    let from: Vec<&Checkpoint> = tokenizer.iter().collect();
    let parameters = Parameters::new(&weights.config).list;
    let dtype = precision.dtype();
    let student = ModelSource { config: &json, parameters: &parameters, dtype: stored(dtype), tokenizer_from: &from };
    let mut scratch = Scratch::default();
    write_model(&out, existing, &student, |parameter, write| {
        Ok::<_, Failure>(write(weights.read(parameter, parameter.dtype(dtype).into(), &mut scratch)?)?)
    })
}

/// Writes a GGUF file of random weights, `model.gguf` in a directory, its matrices in the mix of formats that llama.cpp
/// calls Q4_K_M: blocks of random numbers under scales that give their values the configuration's `initializer_range`
/// as standard deviation. The same seed gives the same bytes on any machine.
///
/// # Errors
/// [`Failure`] where the configuration cannot be followed or written as GGUF, or the directory cannot be written.
pub fn random_gguf(config: &Path, seed: u64, out: &Path, existing: Existing) -> Result<PathBuf, Failure> {
    let out = check_directory(out, existing, &[config])?;
    let unfit = |error| CheckpointError::of(config, error);
    let (weights, json) = Random::new(&config_json(config)?, seed).map_err(unfit)?;
    if weights.config.ropes.iter().any(|rope| rope.scaling.is_some()) {
        let message =
            format!("--format: {} scales its rotary embedding, which init does not write as GGUF", config.display());
        return Err(Failure::usage(message));
    }
    let mut scratch = Scratch::default();
    let shape = (&weights.config, gguf::Said::of(&json));
    write_gguf(&out, existing, shape, &weights.formats(), |parameter, format, write| {
        Ok::<_, Failure>(write(weights.read(parameter, format, &mut scratch)?)?)
    })?;
    Ok(out.join(gguf::FILE))
}

/// Writes a model made of chosen layers of another, in the order given, and everything else of it.
///
/// # Errors
/// [`Failure`] for a layer the teacher does not have, or where a file cannot be read or written.
pub fn from_layers(
    teacher: &Path,
    layers: &[u32],
    precision: Precision,
    out: &Path,
    existing: Existing,
) -> Result<(), Failure> {
    let out = check_directory(out, existing, &[teacher])?;
    let teacher = Checkpoint::open(teacher)?;
    let depth = teacher.config().depth();
    if layers.is_empty() {
        return Err(Failure::usage("--layers is empty: name at least one, as in --layers 0,3,6"));
    }
    if let Some(layer) = layers.iter().find(|layer| **layer >= depth) {
        let last = depth - 1;
        return Err(Failure::usage(format!("--layers {layer}: {} has layers 0 to {last}", teacher.path().display())));
    }
    let mut json = teacher.json.clone();
    json["num_hidden_layers"] = layers.len().into();
    let picked: Vec<LayerConfig> = layers.iter().map(|layer| teacher.config().layers[*layer as usize]).collect();
    // Files list a kind for each layer, or say it by intervals.
    let family = teacher.config().family;
    if json.get("layer_types").is_some() || matches!(family.windows, Windows::Between { .. }) || family.delta_rule {
        json["layer_types"] = picked.iter().map(LayerConfig::name).collect();
        for interval in ["sliding_window_pattern", "full_attention_interval"] {
            json.as_object_mut().into_iter().for_each(|json| drop(json.remove(interval)));
        }
    }
    if teacher.config().family.no_rope {
        json["no_rope_layers"] = picked.iter().map(|layer| u32::from(layer.rope.is_some())).collect();
    }
    let config = ModelConfig { layers: picked, ..teacher.config().clone() };
    let parameters = Parameters::new(&config).list;
    let dtype = precision.dtype();
    let student =
        ModelSource { config: &json, parameters: &parameters, dtype: stored(dtype), tokenizer_from: &[&teacher] };
    let mut scratch = Scratch::default();
    write_model(&out, existing, &student, |parameter, write| {
        let source = Parameter { name: source_name(&parameter.name, layers), ..parameter.clone() };
        Ok::<_, Failure>(write(teacher.read(&source, source.dtype(dtype).into(), &mut scratch)?)?)
    })
}

/// The teacher's name of a student's parameter: its layer replaced by the chosen one.
fn source_name(name: &str, layers: &[u32]) -> String {
    let Some(rest) = name.strip_prefix("model.layers.") else { return name.to_owned() };
    let chosen = rest.split_once('.').and_then(|(layer, part)| {
        let layer: usize = layer.parse().ok()?;
        Some(format!("model.layers.{}.{part}", layers.get(layer)?))
    });
    chosen.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use precast_kernels::{Dtype, Format};

    use super::*;

    #[test]
    fn layers_are_renamed_and_the_rest_is_not() {
        assert_eq!(source_name("model.layers.1.mlp.up_proj.weight", &[0, 7]), "model.layers.7.mlp.up_proj.weight");
        assert_eq!(source_name("model.norm.weight", &[0, 7]), "model.norm.weight");
    }

    /// A file holds what the same configuration and seed give without one.
    #[test]
    fn a_gguf_file_reads_back_as_the_blocks_it_was_made_of() {
        let dir = tempfile::tempdir().unwrap();
        let json = |family: &str, tied: bool| {
            serde_json::json!({
                "model_type": family, "hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 9,
                "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 70_000, "pad_token_id": null,
                "rms_norm_eps": 1e-6, "max_position_embeddings": 64, "rope_theta": 10000.0, "tie_word_embeddings": tied,
            })
        };
        for (family, tied) in
            [("llama", false), ("qwen2", true), ("qwen3", false), ("olmo2", false), ("gemma3_text", true)]
        {
            let config = dir.path().join("config.json");
            std::fs::write(&config, json(family, tied).to_string()).unwrap();
            let path = random_gguf(&config, 7, &dir.path().join(family), Existing::Keep).unwrap();
            let (random, _) = Random::new(&std::fs::read_to_string(&config).unwrap(), 7).unwrap();
            let read = Checkpoint::open(&path).unwrap();
            assert_eq!(read.config(), random.config(), "{family}");
            assert_eq!(read.formats(), random.formats(), "{family}");
            let (mut one, mut other) = (Scratch::default(), Scratch::default());
            for parameter in Parameters::new(&random.config).list {
                let block = random.formats().of(&parameter.name);
                let format = block.map_or(Format::Dense(Dtype::F32), Format::Block);
                // Readers put the rows of interleaved heads in order: they are the same rows.
                let rows = |bytes: &[u8]| {
                    let mut rows: Vec<_> =
                        bytes.chunks(bytes.len() / parameter.shape[0] as usize).map(<[u8]>::to_vec).collect();
                    rows.sort();
                    rows
                };
                let found = rows(Weights::read(&read, &parameter, format, &mut one).unwrap());
                assert!(
                    found == rows(random.read(&parameter, format, &mut other).unwrap()),
                    "{family} {}",
                    parameter.name
                );
            }
        }
    }
}
