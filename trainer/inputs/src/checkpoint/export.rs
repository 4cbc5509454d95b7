//! Writing a model with its tokenizer as one GGUF file.

use std::path::Path;

use itertools::Itertools;
use precast_plan::Parameter;
use precast_system::files::{AsideFile, Existing};
use precast_system::input;

use super::form::Form;
use super::gguf::{self, Encoding};
use super::source::Source;
use super::write::{SENTENCEPIECE, Writing};
use super::{Checkpoint, CheckpointError, check_space, finite};
use crate::added_tokens::AddedTokens;
use crate::tokenizer::{self, Tokenizer};

/// A model as llama.cpp's converter would write it, but for its weights.
pub struct GgufFile {
    export: gguf::Export,
    form: Form,
}

impl GgufFile {
    /// Reads what a file says of a model.
    ///
    /// # Errors
    /// [`CheckpointError`] for a model without a tokenizer, and for one that GGUF has no words for.
    pub fn new(model: &Checkpoint, encoding: Encoding) -> Result<Self, CheckpointError> {
        let config = model.config();
        let about = gguf::About {
            name: model.name(),
            config,
            generation: model.generation.clone(),
            tokenizer: model.tokenizer_files()?,
        };
        let files = &model.tensors().list;
        let export = gguf::Export::new(&about, encoding, |name| files.get(name).map(|tensor| tensor.file));
        Ok(Self { export: export.map_err(|fault| fault.at(model.path()))?, form: Form::of_gguf(config) })
    }

    /// The tokenizer as readers of the file have it.
    ///
    /// # Errors
    /// [`CheckpointError`] where they have none.
    pub fn tokenizer(&self, path: &Path) -> Result<Tokenizer, CheckpointError> {
        let read = Tokenizer::new(path, || self.export.tokenizer(), &AddedTokens::default());
        read.map_err(|reason| CheckpointError::of(path, reason))
    }

    /// How its tensors are stored, in words: `BF16+F32, 290 tensors`.
    pub fn stored(&self) -> String {
        let kinds = self.export.tensors.iter().map(|tensor| tensor.kind.to_string()).collect_vec();
        super::formats::counted(kinds.iter().map(String::as_str))
    }

    /// Writes the file, whole or not at all. `read` gives a parameter's values, in Hugging Face's order: no more of the
    /// model is in memory.
    ///
    /// # Errors
    /// [`CheckpointError`] of the disk or of `read`, and where a value would not be finite.
    pub fn write<E: From<CheckpointError>>(
        &self,
        path: &Path,
        mut read: impl FnMut(&Parameter, &mut Vec<f32>) -> Result<(), E>,
    ) -> Result<(), E> {
        let io = |error| CheckpointError::Io { what: "write", path: path.to_owned(), error };
        let (header, tensors) = (self.export.header(), &self.export.tensors);
        let bytes = header.len() as u64 + tensors.iter().map(gguf::WrittenTensor::padded).sum::<u64>();
        check_space(path, "the model", bytes)?;
        let mut file = AsideFile::new(path).map_err(io)?;
        let (mut values, writing) = (Vec::new(), Writing::start(bytes));
        gguf::write::<E, _>(&mut file, (&header, tensors), io, |tensor, write| {
            let parameter = match &tensor.values {
                gguf::Values::Given(values) => return Ok(write(&tensor.kind.encode(values))?),
                gguf::Values::Of(parameter) => parameter,
            };
            values.resize(parameter.elems() as usize, 0.0);
            read(parameter, &mut values)?;
            let order = self.form.order(&parameter.name, &parameter.shape);
            order.expect("the shape of a parameter is that of its heads").write(&mut values);
            self.form.write_values(&parameter.name, &mut values);
            let bytes = tensor.kind.encode(&values);
            let unwritten = |what| CheckpointError::WouldNotBeFinite { path: path.to_owned(), what };
            finite::check_stored(&parameter.name, &bytes, tensor.kind).map_err(unwritten)?;
            Ok(writing.through(write)(&bytes)?)
        })?;
        Ok(file.publish(Existing::Keep).map_err(io)?)
    }
}

impl Checkpoint {
    /// The name of its directory or file.
    fn name(&self) -> String {
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    fn tokenizer_files(&self) -> Result<gguf::TokenizerFiles<'_>, CheckpointError> {
        let none = || {
            CheckpointError::of(
                &self.path,
                "it has no tokenizer, and llama.cpp reads no model without one: put tokenizer.json and what belongs \
                to it into the \
                 directory, or make the model with `precast init --tokenizer`",
            )
        };
        let tokenizer = self.tokenizer()?.ok_or_else(none)?;
        let json = tokenizer.text().map_err(|reason| CheckpointError::of(&self.path, reason))?;
        let sentencepiece = match &self.source {
            Source::HuggingFace(_) => sentencepiece(&self.path)?,
            Source::SingleFile(file) => file.sentencepiece().map_err(|fault| fault.at(&self.path))?,
        };
        let template = self.chat_source()?;
        let config = self.tokenizer_config()?;
        Ok(gguf::TokenizerFiles { json, config, model: &self.json, sentencepiece, template })
    }
}

/// The `tokenizer.model` in a directory.
fn sentencepiece(directory: &Path) -> Result<Option<Vec<u8>>, CheckpointError> {
    let path = directory.join(SENTENCEPIECE);
    if !path.exists() {
        return Ok(None);
    }
    input::read(&path, tokenizer::MOST_BYTES).map(Some).map_err(CheckpointError::io("read", path))
}
