//! Writing a model as a Hugging Face directory, or as a GGUF file.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;

use precast_kernels::{Dtype, Format};
use precast_plan::{Formats, ModelConfig, Parameter};
use precast_system::files::{Aside, Existing, free_bytes};
use precast_system::input;
use precast_system::progress::{Progress, Unit};
use safetensors::tensor::{Dtype as Stored, Metadata, TensorInfo};

use super::form::Form;
use super::huggingface::GENERATION_CONFIG;
use super::kind::Kind;
use super::single_file::SingleFile;
use super::source::Source;
use super::{Checkpoint, CheckpointError, Fault, NotFinite, finite, gguf};
use crate::chat::TOOL_USE;
use crate::tokenizer;

/// Weights, in a directory that is written.
pub const MODEL: &str = "model.safetensors";
/// SentencePiece's own file.
pub(super) const SENTENCEPIECE: &str = "tokenizer.model";
/// Settings of the tokenizer, and the chat template.
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const TEMPLATE: &str = "chat_template.jinja";
/// Files copied along from the model a student came from.
const COPIED: [&str; 9] = [
    "tokenizer.json",
    SENTENCEPIECE,
    TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    TEMPLATE,
    GENERATION_CONFIG,
];

/// Parts that a model is written from.
pub struct ModelSource<'a> {
    /// Its `config.json`, as it was read.
    pub config: &'a serde_json::Value,
    pub parameters: &'a [Parameter],
    /// Element type to write: F32, F16 or BF16.
    pub dtype: Stored,
    /// Models whose tokenizer it takes: the first that has one.
    pub tokenizer_from: &'a [&'a Checkpoint],
}

impl ModelSource<'_> {
    /// Bytes of its weights.
    pub fn bytes(&self) -> u64 {
        self.parameters.iter().map(|one| one.elems() * bytes_of(self.dtype_of(one)) as u64).sum()
    }

    /// The dtype of a parameter.
    pub fn dtype_of(&self, parameter: &Parameter) -> Stored {
        if parameter.dtype(Dtype::Bf16) == Dtype::F32 { Stored::F32 } else { self.dtype }
    }
}

/// Takes a part of a tensor's bytes.
pub type Write<'w> = dyn FnMut(&[u8]) -> Result<(), CheckpointError> + 'w;

/// Progress of writing a model.
pub(super) struct Writing {
    progress: Progress,
    bytes: u64,
}

impl Writing {
    /// Begins to write so many bytes of weights.
    pub fn start(bytes: u64) -> Self {
        Self { progress: Progress::start("writing the model", Unit::Bytes), bytes }
    }

    /// Counts what is written.
    pub fn through<'w>(&'w self, write: &'w mut Write<'_>) -> impl FnMut(&[u8]) -> Result<(), CheckpointError> + 'w {
        move |part| {
            write(part)?;
            self.progress.add(part.len() as u64, self.bytes);
            Ok(())
        }
    }
}

/// Writes a Hugging Face directory that `transformers` loads, as [`fill_model`] does. It appears whole or not at all,
/// with a listing by which Precast knows it again.
///
/// # Errors
/// [`CheckpointError`] of the disk or of `read`; a directory that is there stays, unless it is to be replaced.
pub fn write_model<E: From<CheckpointError>>(
    directory: &Path,
    existing: Existing,
    model: &ModelSource<'_>,
    mut read: impl FnMut(&Parameter, &mut Write<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let io = |error| CheckpointError::Io { what: "write", path: directory.to_owned(), error };
    let bytes = model.bytes();
    check_space(directory, "the model", bytes)?;
    let mut aside = Aside::new(directory).map_err(io)?;
    let writing = Writing::start(bytes);
    fill_model(&mut aside, model, |parameter, write| read(parameter, &mut writing.through(write)))?;
    aside.list().map_err(io)?;
    Ok(aside.publish(existing).map_err(io)?)
}

/// Writes `config.json`, `model.safetensors` and the tokenizer of a model. `read` gives a parameter's bytes in
/// [its dtype](ModelSource::dtype_of), in parts: no more of the model than a part is in memory.
///
/// # Errors
/// [`CheckpointError`] of the disk or of `read`, and where a weight is not finite.
pub fn fill_model<E: From<CheckpointError>>(
    aside: &mut Aside,
    model: &ModelSource<'_>,
    read: impl FnMut(&Parameter, &mut Write<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let config = serde_json::to_string_pretty(&config(model)).expect("a JSON value serializes") + "\n";
    let io = CheckpointError::io("write", aside.target().join("config.json"));
    aside.write("config.json", config.as_bytes()).map_err(io)?;
    let tensors = model.parameters.iter().map(|one| (one.name.clone(), one.shape.clone(), model.dtype_of(one), one));
    write_safetensors(aside, MODEL, tensors.collect(), read)?;
    Ok(write_tokenizer(aside, model.tokenizer_from)?)
}

/// Writes a file of tensors, each with its name, shape and dtype, in the order of their names. `read` gives the bytes
/// of one, in parts.
///
/// # Errors
/// [`CheckpointError`] of the disk or of `read`, and where a value is not finite.
pub(crate) fn write_safetensors<T, E: From<CheckpointError>>(
    aside: &mut Aside,
    file: &'static str,
    mut tensors: Vec<(String, Vec<u64>, Stored, T)>,
    mut read: impl FnMut(T, &mut Write<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let target = aside.target().to_owned();
    let io = |error| CheckpointError::Io { what: "write", path: target.join(file), error };
    tensors.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let shape = |shape: &[u64]| shape.iter().map(|dim| *dim as usize).collect();
    let shapes = tensors.iter().map(|(name, dims, dtype, _)| (name.clone(), shape(dims), *dtype));
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let header = safetensors_header(shapes, Some(metadata));
    let mut file = aside.create(file).map_err(io)?;
    file.write_all(&header).map_err(io)?;
    for (name, shape, dtype, tensor) in tensors {
        let mut done = 0;
        read(tensor, &mut |part| {
            check_written(&target, &name, done, part, dtype)?;
            done += part.len() / bytes_of(dtype);
            file.write_all(part).map_err(io)
        })?;
        assert_eq!(done as u64, shape.iter().product::<u64>(), "elements of {name}");
    }
    aside.close(file);
    Ok(())
}

/// The length of the header and the header, for tensors that follow it in the order given.
pub fn safetensors_header(
    tensors: impl IntoIterator<Item = (String, Vec<usize>, Stored)>,
    metadata: Option<HashMap<String, String>>,
) -> Vec<u8> {
    let mut end = 0;
    let placed = tensors.into_iter().map(|(name, shape, dtype)| {
        let start = end;
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        (name, TensorInfo { dtype, shape, data_offsets: (start, end) })
    });
    let metadata = Metadata::new(metadata, placed.collect()).expect("tensors that follow each other");
    let mut header = serde_json::to_vec(&metadata).expect("plain data serializes");
    // The library pads so, too: what follows is aligned.
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes()[..], &header].concat()
}

fn bytes_of(dtype: Stored) -> usize {
    dtype.bitsize() / 8
}

/// The dtype of a file whose elements are those of a run.
pub fn stored(dtype: Dtype) -> Stored {
    if dtype == Dtype::Bf16 { Stored::BF16 } else { Stored::F32 }
}

/// Refuses to write a part of a tensor in which an element is not finite. `done` elements of it are before the part.
fn check_written(target: &Path, tensor: &str, done: usize, part: &[u8], dtype: Stored) -> Result<(), CheckpointError> {
    let kind = Kind::of(dtype).expect("a dtype that is written is read");
    finite::check_stored(tensor, part, kind).map_err(|found| {
        let what = NotFinite { index: found.index + done, ..found };
        CheckpointError::WouldNotBeFinite { path: target.to_owned(), what }
    })
}

/// The configuration with the dtype of what is written, in both spellings.
fn config(model: &ModelSource<'_>) -> serde_json::Value {
    let mut config = model.config.clone();
    let name = match model.dtype {
        Stored::BF16 => "bfloat16",
        Stored::F16 => "float16",
        _ => "float32",
    };
    let spelling = if config.get("dtype").is_some() { "dtype" } else { "torch_dtype" };
    config[spelling] = name.into();
    config
}

/// The tokenizer of the first model that has one.
fn write_tokenizer(aside: &mut Aside, from: &[&Checkpoint]) -> Result<(), CheckpointError> {
    for checkpoint in from {
        match &checkpoint.source {
            Source::HuggingFace(_) if !checkpoint.path.join("tokenizer.json").exists() => continue,
            Source::SingleFile(file) if !file.has_tokenizer() => continue,
            Source::HuggingFace(_) => {
                let changed = changed(checkpoint)?;
                // Settings that hold the chat template stand for its file.
                let stands_for =
                    |other: &str, name: &str| other == name || (other, name) == (TOKENIZER_CONFIG, TEMPLATE);
                let is_copied = |name: &&str| !changed.iter().any(|(other, _)| stands_for(other, name));
                for name in COPIED.into_iter().filter(is_copied) {
                    let source = checkpoint.path.join(name);
                    if source.exists() {
                        let bytes = input::read(&source, tokenizer::MOST_BYTES)
                            .map_err(CheckpointError::io("read", &source))?;
                        aside.write(name, &bytes).map_err(CheckpointError::io("copy", &source))?;
                    }
                }
            }
            Source::SingleFile(file) => write_built(aside, checkpoint, &**file)?,
        }
        for (name, json) in changed(checkpoint)? {
            let io = CheckpointError::io("write", aside.target().join(name));
            aside.write(name, format!("{json:#}\n").as_bytes()).map_err(io)?;
        }
        return Ok(());
    }
    Ok(())
}

/// Files that are written otherwise than they were read: settings with the chat template that a model has taken, or
/// that is in several files, and the tokens that end answers.
fn changed(checkpoint: &Checkpoint) -> Result<Vec<(&'static str, serde_json::Value)>, CheckpointError> {
    let template = match checkpoint.taken_template() {
        Some(taken) => Some(taken.clone()),
        None if checkpoint.path.join(TOOL_USE).exists() => checkpoint.chat_source()?,
        None => None,
    };
    let settings = template.map(|template| {
        let mut config = checkpoint.tokenizer_config()?;
        template.write_into(&mut config);
        Ok((TOKENIZER_CONFIG, config))
    });
    let ends = checkpoint.changed_generation_config().map(|json| (GENERATION_CONFIG, json));
    Ok(settings.transpose()?.into_iter().chain(ends).collect())
}

/// The tokenizer that is built of a file's metadata, and what belongs beside it.
fn write_built(aside: &mut Aside, checkpoint: &Checkpoint, file: &dyn SingleFile) -> Result<(), CheckpointError> {
    let path = &checkpoint.path;
    let at = |fault: Fault| fault.at(path);
    let mut write = |name: &str, bytes: &[u8]| {
        let io = CheckpointError::io("write", aside.target().join(name));
        aside.write(name, bytes).map_err(io)
    };
    let tokenizer = file.tokenizer().map_err(at)?;
    let config = file.tokenizer_config(&|id| tokenizer.id_to_token(id)).map_err(at)?;
    let has_taken = checkpoint.taken_template().is_some();
    let text = tokenizer.to_string(false).map_err(|error| CheckpointError::of(path, error))?;
    write("tokenizer.json", text.as_bytes())?;
    if !has_taken {
        write(TOKENIZER_CONFIG, format!("{config:#}\n").as_bytes())?;
    }
    file.sentencepiece().map_err(at)?.map_or(Ok(()), |model| write(SENTENCEPIECE, &model))
}

/// Writes a directory with a GGUF file whose matrices are stored as `formats` says, and all else in f32. It appears
/// whole or not at all, with a listing by which Precast knows it again. `read` gives a parameter's bytes in its format,
/// in parts.
///
/// # Errors
/// [`CheckpointError`] of the disk, of `read`, or where a parameter has no name in GGUF files.
pub fn write_gguf<E: From<CheckpointError>>(
    directory: &Path,
    existing: Existing,
    (config, said): (&ModelConfig, gguf::Said),
    formats: &Formats,
    mut read: impl FnMut(&Parameter, Format, &mut Write<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let wordless = |fault: Fault| {
        let path = directory.display();
        CheckpointError::Wrong(format!(
            "cannot write {path} as GGUF: {fault}; leave out --format for a Hugging Face directory"
        ))
    };
    let (header, tensors) = gguf::random_header(config, &said, formats).map_err(wordless)?;
    let io = |error| CheckpointError::Io { what: "write", path: directory.join(gguf::FILE), error };
    let bytes = tensors.iter().map(gguf::WrittenTensor::padded).sum();
    check_space(directory, "the model", bytes)?;
    let writing = Writing::start(bytes);
    let mut aside = Aside::new(directory).map_err(io)?;
    let mut file = aside.create(gguf::FILE).map_err(io)?;
    let form = Form::of_gguf(config);
    gguf::write(&mut file, (&header, &tensors), io, |tensor, write| match &tensor.values {
        gguf::Values::Of(parameter) if form.has_other_values(&parameter.name) => {
            read(parameter, tensor.format(), &mut |bytes| {
                let mut values: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
                form.write_values(&parameter.name, &mut values);
                writing.through(write)(bytemuck::cast_slice(&values))
            })
        }
        gguf::Values::Of(parameter) => read(parameter, tensor.format(), &mut writing.through(write)),
        gguf::Values::Given(_) => unreachable!("a model of random weights has no scaled rotary embedding"),
    })?;
    aside.close(file);
    aside.list().map_err(io)?;
    Ok(aside.publish(existing).map_err(io)?)
}

/// Refuses before anything is written when the disk has too little room.
///
/// # Errors
/// [`CheckpointError::Space`].
pub fn check_space(path: &Path, what: &'static str, needed: u64) -> Result<(), CheckpointError> {
    match free_space(path) {
        (Some(free), existing) if free < needed => {
            Err(CheckpointError::Space { path: existing.to_owned(), what, needed, free })
        }
        _ => Ok(()),
    }
}

/// Returns the bytes that are free where a path is or is going to be, if that is known, and what is there of the path.
pub fn free_space(path: &Path) -> (Option<u64>, &Path) {
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("."));
    (free_bytes(existing), existing)
}

#[cfg(test)]
mod tests {
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn a_file_written_in_parts_is_that_of_the_library() {
        let (a, b) = (vec![1u8; 4 * 6], vec![2u8; 2 * 4]);
        let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
        let (wide, narrow) = (Stored::F32, Stored::BF16);
        let metadata = Some(HashMap::from([("format".to_owned(), "pt".to_owned())]));
        let views = [("a", view(wide, &[2, 3], &a)), ("b", view(narrow, &[4], &b))];
        let whole = safetensors::serialize(views, metadata.clone());
        let shapes = [("a".to_owned(), vec![2, 3], wide), ("b".to_owned(), vec![4], narrow)];
        let header = safetensors_header(shapes, metadata);
        assert_eq!([&header[..], &a, &b].concat(), whole.unwrap());
    }
}
