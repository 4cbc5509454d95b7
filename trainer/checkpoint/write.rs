//! Writing a model as a Hugging Face directory.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use precast_fatbins::files::{free_bytes, write_directory};
use precast_kernels::Dtype;
use precast_plan::Parameter;
use safetensors::tensor::{Dtype as Stored, TensorView};

use super::{Checkpoint, CheckpointError, Source, finite};

/// Files copied along from the model a student came from.
const COPIED: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
];

/// A model to write.
pub struct Student<'a> {
    /// Its `config.json`, as it was read.
    pub config: &'a serde_json::Value,
    /// Its parameters.
    pub parameters: &'a [Parameter],
    /// Element type to write.
    pub dtype: Dtype,
    /// Models whose tokenizer it takes: the first that has one.
    pub tokenizer_from: &'a [&'a Checkpoint],
}

/// Writes a Hugging Face directory that `transformers` loads: `config.json`, `model.safetensors`, the
/// tokenizer. `read` gives a parameter's bytes in the model's dtype. The directory appears whole or not at all.
///
/// # Errors
/// [`CheckpointError`] of the disk or of `read`, and where a weight is not finite: then nothing is written.
pub fn write_model<E: From<CheckpointError>>(
    directory: &Path,
    model: &Student<'_>,
    mut read: impl FnMut(&Parameter) -> Result<Vec<u8>, E>,
) -> Result<(), E> {
    let elements: u64 = model.parameters.iter().map(|parameter| parameter.span.elems).sum();
    check_space(directory, "the model", elements * model.dtype.bytes())?;
    let mut contents = Vec::with_capacity(model.parameters.len());
    for parameter in model.parameters {
        let bytes = read(parameter)?;
        let refused = |what| CheckpointError::WouldNotBeFinite { path: directory.to_owned(), what };
        finite::check(&parameter.name, &bytes, model.dtype).map_err(refused)?;
        contents.push((parameter, bytes));
    }
    let io = |what, path: &Path| {
        let path = path.to_owned();
        move |error| CheckpointError::Io { what, path, error }
    };
    let written = write_directory::<Wrapped>(directory, |aside| {
        let config = serde_json::to_string_pretty(&config(model)).expect("a JSON value serialises");
        fs::write(aside.join("config.json"), config + "\n").map_err(io("write", &directory.join("config.json")))?;
        write_weights(&aside.join("model.safetensors"), &contents, model.dtype)
            .map_err(io("write", &directory.join("model.safetensors")))?;
        write_tokenizer(aside, model.tokenizer_from)?;
        Ok(())
    });
    written.map_err(|Wrapped(error)| match error {
        CheckpointError::Io { what, path, error } if path.as_os_str().is_empty() => {
            E::from(CheckpointError::Io { what, path: directory.to_owned(), error })
        }
        error => E::from(error),
    })
}

/// Lets [`write_directory`] report its own I/O errors.
struct Wrapped(CheckpointError);

impl From<std::io::Error> for Wrapped {
    fn from(error: std::io::Error) -> Self {
        Self(CheckpointError::Io { what: "write", path: Default::default(), error })
    }
}

impl From<CheckpointError> for Wrapped {
    fn from(error: CheckpointError) -> Self {
        Self(error)
    }
}

/// The configuration with the dtype of what is written, in both spellings.
fn config(model: &Student<'_>) -> serde_json::Value {
    let mut config = model.config.clone();
    let name = if model.dtype == Dtype::Bf16 { "bfloat16" } else { "float32" };
    let spelling = if config.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    config[spelling] = name.into();
    config
}

fn write_weights(path: &Path, contents: &[(&Parameter, Vec<u8>)], dtype: Dtype) -> std::io::Result<()> {
    let stored = if dtype == Dtype::Bf16 { Stored::BF16 } else { Stored::F32 };
    let views: Result<Vec<_>, _> = contents
        .iter()
        .map(|(parameter, bytes)| {
            let shape = parameter.shape.iter().map(|dim| *dim as usize).collect();
            TensorView::new(stored, shape, bytes).map(|view| (parameter.name.as_str(), view))
        })
        .collect();
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    match views.and_then(|views| safetensors::serialize_to_file(views, Some(metadata), path)) {
        Ok(()) => Ok(()),
        Err(safetensors::SafeTensorError::IoError(error)) => Err(error),
        Err(error) => Err(std::io::Error::other(error)),
    }
}

/// The tokenizer of the first model that has one.
fn write_tokenizer(directory: &Path, from: &[&Checkpoint]) -> Result<(), CheckpointError> {
    for checkpoint in from {
        match &checkpoint.source {
            Source::HuggingFace(_) if !checkpoint.path.join("tokenizer.json").exists() => continue,
            Source::HuggingFace(_) => {
                for name in COPIED {
                    let source = checkpoint.path.join(name);
                    if source.exists() {
                        fs::copy(&source, directory.join(name)).map_err(CheckpointError::io("copy", &source))?;
                    }
                }
            }
            Source::Gguf(gguf) => {
                let path = directory.join("tokenizer.json");
                gguf.tokenizer()?
                    .save(&path, false)
                    .map_err(|error| CheckpointError::Tokenizer { path: path.clone(), reason: error.to_string() })?;
                let config = gguf.tokenizer_config()?;
                let path = directory.join("tokenizer_config.json");
                fs::write(&path, format!("{config:#}\n")).map_err(CheckpointError::io("write", &path))?;
            }
        }
        return Ok(());
    }
    Ok(())
}

/// Refuses before anything is written when the disk has too little room.
pub(crate) fn check_space(path: &Path, what: &'static str, needed: u64) -> Result<(), CheckpointError> {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
    match free_bytes(existing) {
        Some(free) if free < needed => Err(CheckpointError::Space { path: existing.to_owned(), what, needed, free }),
        _ => Ok(()),
    }
}
