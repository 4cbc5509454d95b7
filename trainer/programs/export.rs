//! `precast export`: a model as one file for llama.cpp and what is built on it.

use std::path::Path;

use precast_kernels::Dtype;

use super::merge::Merged;
use crate::inputs::checkpoint::gguf::Encoding;
use crate::inputs::checkpoint::{Checkpoint, GgufFile, Scratch, Weights};
use crate::inputs::pair;
use crate::run::failure::Failure;
use crate::run::out::check_file;

/// Writes a model with its tokenizer as a GGUF file; with an adapter, the model that `precast merge` writes. Returns
/// what is to be said of it.
///
/// # Errors
/// [`Failure`] where model or adapter cannot be read, GGUF has no words for the tokenizer, or the file is there or
/// cannot be written.
pub fn export(model: &Path, adapter: Option<&Path>, out: &Path, encoding: Encoding) -> Result<String, Failure> {
    check_file(out)?;
    let mut scratch = Scratch::default();
    if let Some(adapter) = adapter {
        let merged = Merged::open(model, adapter)?;
        let file = checked(&merged.base, encoding)?;
        file.write(out, |parameter, values| merged.read(parameter, values, &mut scratch))?;
        return Ok(format!("{merged}\nwritten as {}", file.stored()));
    }
    let model = Checkpoint::open(model)?;
    let file = checked(&model, encoding)?;
    file.write(out, |parameter, values| {
        bytemuck::cast_slice_mut(values).copy_from_slice(model.read(parameter, Dtype::F32.into(), &mut scratch)?);
        Ok::<_, Failure>(())
    })?;
    Ok(format!("{} ({})\nwritten as {}", model.path().display(), model.stored(), file.stored()))
}

/// A file whose tokenizer makes the same tokens of text as the model's own.
fn checked(model: &Checkpoint, encoding: Encoding) -> Result<GgufFile, Failure> {
    let file = GgufFile::new(model, encoding)?;
    if let Some(own) = model.tokenizer()? {
        pair::check_written(model.path(), own, &file.tokenizer(model.path())?)?;
    }
    Ok(file)
}
