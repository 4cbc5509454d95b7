//! A model on disk, and its weights.

use std::borrow::Borrow;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use itertools::Itertools;
use precast_kernels::{Dtype, Format, Gamma};
use precast_plan::{Formats, ModelConfig, Parameter};
use safetensors::tensor::Dtype as Stored;

use super::source::Source;
use super::store::Tensors;
use super::zero::{Zeros, is_zero};
use super::{Access, CheckpointError, NotFinite, Read, Scratch, Weights, finite, formats};
use crate::chat::ChatSource;
use crate::tokenizer::Tokenizer;

/// A model on disk: its shape, its tensors by Hugging Face name, its tokenizer.
pub struct Checkpoint {
    pub(super) path: PathBuf,
    pub(super) source: Source,
    pub(super) config: ModelConfig,
    /// Its `config.json`; for a single file, what that would be.
    pub json: serde_json::Value,
    /// Its `generation_config.json`; null where there is none.
    pub(super) generation: serde_json::Value,
    /// Read when it is first asked for.
    pub(super) tokenizer: OnceLock<Option<Arc<Tokenizer>>>,
    /// Chat template of another model, where it has none.
    pub(super) taken_template: OnceLock<ChatSource>,
    /// Token that ends answers, besides those of its files.
    pub(super) stop_token: OnceLock<u32>,
    pub(super) zeros: Zeros,
}

impl Checkpoint {
    /// Returns the path that it was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub(super) fn tensors(&self) -> &Tensors {
        self.source.tensors()
    }

    /// The dtype of a model that is this one but for some values: that of its tensors, bf16 for those in blocks. Of a
    /// single file, whose vectors are F32 whatever its matrices are, that of its matrices; F32 where dense tensors
    /// differ.
    pub fn element(&self) -> Stored {
        let single_file = !matches!(self.source, Source::HuggingFace(_));
        let mut names: Vec<&str> = self.tensors().formats().sorted_unstable().dedup().collect();
        if single_file && names.len() > 1 {
            names.retain(|name| *name != "F32");
        }
        match names[..] {
            ["F32"] => Stored::F32,
            ["F16"] => Stored::F16,
            ["BF16"] => Stored::BF16,
            _ if single_file => Stored::BF16,
            _ => Stored::F32,
        }
    }

    /// Its tensors, of those that have been read, that are wholly zero and should not be.
    pub fn zeros(&self) -> Vec<String> {
        self.zeros.names()
    }

    fn check_zero(&self, parameter: &Parameter, is_zero: bool) -> Result<(), CheckpointError> {
        // Zero is what norms of form `1 + w` are without training.
        let neutral = parameter.shape.len() == 1 && self.config().family.gamma == Gamma::OnePlus;
        if is_zero && !neutral { self.zeros.found(&self.path, &parameter.name) } else { Ok(()) }
    }

    /// Whole units of elements of a parameter, none of which is NaN or infinite.
    fn read_elements<'a>(
        &'a self,
        parameter: &Parameter,
        elements: Range<u64>,
        format: Format,
        scratch: &'a mut Scratch,
    ) -> Read<'a> {
        let (name, first) = (&parameter.name, elements.start as usize);
        let bytes = self.tensors().read(name, elements, format, scratch)?;
        finite::check(name, bytes, format).map_err(|what| CheckpointError::NotFinite {
            path: self.path.clone(),
            what: NotFinite { index: first + what.index, ..what },
        })?;
        Ok(bytes)
    }

    /// The files that hold its weights, in name order.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        self.tensors().files.iter().map(|(path, _)| path.clone()).collect()
    }
}

impl Borrow<dyn Weights> for Checkpoint {
    fn borrow(&self) -> &(dyn Weights + 'static) {
        self
    }
}

impl Weights for Checkpoint {
    fn config(&self) -> &ModelConfig {
        self.config()
    }

    fn dtype(&self) -> Option<Dtype> {
        self.tensors().dtype()
    }

    fn stored(&self) -> String {
        formats::counted(self.tensors().formats())
    }

    fn formats(&self) -> Formats {
        self.tensors().blocks()
    }

    fn read<'a>(&'a self, parameter: &Parameter, format: Format, scratch: &'a mut Scratch) -> Read<'a> {
        let bytes = self.read_elements(parameter, 0..parameter.elems(), format, scratch)?;
        self.check_zero(parameter, is_zero(bytes, format))?;
        Ok(bytes)
    }

    fn read_parts(
        &self,
        parameter: &Parameter,
        format: Format,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), CheckpointError> {
        let dtype = match format {
            Format::Dense(dtype) => Some(dtype),
            Format::Block(_) => None,
        };
        // Elements that are converted come in parts, too: caches hold what would else go through memory.
        let is_as_stored = dtype.is_none_or(|dtype| self.tensors().stored(&parameter.name) == Some(dtype));
        if scratch.raw.access != Access::Direct && is_as_stored {
            let _ = take(Weights::read(self, parameter, format, scratch)?);
            return Ok(());
        }
        let mut all_zero = true;
        for range in self.tensors().parts(&parameter.name, scratch.raw.access)? {
            let bytes = self.read_elements(parameter, range, format, scratch)?;
            all_zero = all_zero && is_zero(bytes, format);
            if take(bytes).is_break() {
                return Ok(());
            }
        }
        self.check_zero(parameter, all_zero)
    }
}
