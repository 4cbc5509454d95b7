//! A model that is written as a GGUF file.

use std::io::Write as _;
use std::path::Path;

use precast_kernels::Format;
use precast_plan::{Formats, ModelConfig, Parameter};
use precast_system::files::{Aside, Existing};

use super::gguf::{FILE, WrittenTensor, header, tensors};
use super::write::check_space;
use super::{CheckpointError, Write};

/// Writes a directory with a GGUF file whose matrices are stored as `formats` says, and all else in f32. It appears whole or
/// not at all, with a listing by which Precast knows it again. `read` gives a parameter's bytes in its format, in parts.
///
/// # Errors
/// [`CheckpointError`] of the disk, of `read`, or where a parameter has no name in GGUF files.
pub fn write_gguf<E: From<CheckpointError>>(
    directory: &Path,
    existing: Existing,
    config: &ModelConfig,
    formats: &Formats,
    mut read: impl FnMut(&Parameter, Format, &mut Write<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let unnamed = |parameter: Parameter| {
        let (path, family, tensor) = (directory.display(), config.family.gguf, parameter.name);
        CheckpointError::Wrong(format!(
            "cannot write {path} as GGUF: files of architecture {family} have no tensor for {tensor}; leave out --format for a \
             Hugging Face directory"
        ))
    };
    let tensors = tensors(config, formats).map_err(unnamed)?;
    let io = |error| CheckpointError::Io { what: "write", path: directory.join(FILE), error };
    check_space(directory, "the model", tensors.iter().map(WrittenTensor::padded).sum())?;
    let mut aside = Aside::new(directory).map_err(io)?;
    let mut file = aside.create(FILE).map_err(io)?;
    file.write_all(&header(config, &tensors)).map_err(io)?;
    for tensor in &tensors {
        let mut done = 0;
        read(&tensor.parameter, tensor.format, &mut |part| {
            done += part.len() as u64;
            file.write_all(part).map_err(io)
        })?;
        assert_eq!(done, tensor.bytes(), "bytes of {}", tensor.name);
        file.write_all(&vec![0; (tensor.padded() - done) as usize]).map_err(io)?;
    }
    aside.close(file);
    aside.list().map_err(io)?;
    Ok(aside.publish(existing).map_err(io)?)
}
