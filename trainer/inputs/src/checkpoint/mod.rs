//! Models in and out: Hugging Face directories, GGUF and APR files.

pub mod apr;
mod checksum;
mod cursor;
mod encode;
mod error;
mod export;
mod fault;
mod file;
mod finite;
mod formats;
pub mod gguf;
mod heads;
mod huggingface;
mod kind;
mod missing;
mod scratch;
mod single_file;
mod store;
mod tensors;
mod update;
mod write;
mod zero;

use std::borrow::Borrow;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use chrono::NaiveDate;
use itertools::Itertools;
use precast_fatbins::Digest;
use precast_kernels::{Dtype, Format};
use precast_plan::{Formats, ModelConfig, Parameter, Parameters, unread_fields};
use precast_system::{files, input};
use rayon::prelude::*;
use safetensors::tensor::Dtype as Stored;
use serde_json::json;

use crate::added_tokens::AddedTokens;
use crate::base::impostors::{Disguise, read_text, without_mark};
use crate::base::notes::note;
use crate::chat::{self, ChatSource, ChatTemplate};
use crate::tokenizer::{self, Tokenizer};
use apr::Apr;
pub use error::CheckpointError;
pub use export::GgufFile;
pub use fault::Fault;
pub use file::Access;
use file::WeightFile;
pub use finite::NotFinite;
use gguf::Gguf;
pub use scratch::Scratch;
use single_file::SingleFile;
pub(crate) use store::Tensors;
pub(crate) use update::farthest;
pub(crate) use write::write_safetensors;
pub use write::{MODEL, ModelSource, Write, fill_model, stored, write_gguf, write_model};
pub use write::{check_space, free_space, safetensors_header};
use zero::Zeros;
pub(crate) use zero::is_zero;

/// Bytes of weights, in scratch memory or where they are mapped.
pub type Read<'a> = Result<&'a [u8], CheckpointError>;

/// The source of a model's weights.
pub trait Weights {
    fn config(&self) -> &ModelConfig;

    /// The dtype in which all of its parameters are in memory as they are, if there is one.
    fn dtype(&self) -> Option<Dtype>;

    /// How they are stored, in words: `BF16, 290 tensors`.
    fn stored(&self) -> String;

    /// In which formats its matrices are stored.
    fn formats(&self) -> Formats;

    /// The elements of a parameter as bytes of a dtype, or the blocks that [`Self::formats`] says it is stored in; in
    /// `scratch` unless they are in memory as they are.
    ///
    /// # Errors
    /// [`CheckpointError`] where they cannot be read.
    fn read<'a>(&'a self, parameter: &Parameter, format: Format, scratch: &'a mut Scratch) -> Read<'a>;

    /// Reads a parameter in parts, in order: of [`PART_ELEMENTS`] elements where weights are read past the page cache or converted, so
    /// that the host holds no more of them, else whole. Ends where `take` breaks.
    ///
    /// # Errors
    /// [`CheckpointError`] where they cannot be read.
    fn read_parts(
        &self,
        parameter: &Parameter,
        format: Format,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), CheckpointError> {
        let _ = take(self.read(parameter, format, scratch)?);
        Ok(())
    }
}

/// Elements of a part of a parameter that is read in parts.
pub const PART_ELEMENTS: u64 = 4 << 20;

enum Source {
    HuggingFace(Tensors),
    SingleFile(Box<dyn SingleFile>),
}

impl Source {
    /// A GGUF or APR file, and what its `config.json` would be; none where it is neither.
    fn of_file(path: &Path) -> Result<Option<(Self, serde_json::Value)>, CheckpointError> {
        let magic = WeightFile::open(path).and_then(|file| file.head(4)).unwrap_or_default();
        let read = || -> Result<Option<(Self, serde_json::Value)>, Fault> {
            let file: Box<dyn SingleFile> = match magic.first_chunk() {
                Some(&gguf::MAGIC) => Box::new(Gguf::read(path)?),
                Some(&apr::MAGIC) => Box::new(Apr::read(path)?),
                _ => return Ok(None),
            };
            let json = file.config()?;
            Ok(Some((Self::SingleFile(file), json)))
        };
        read().map_err(|fault| fault.at(path))
    }

    fn tensors(&self) -> &Tensors {
        match self {
            Self::HuggingFace(tensors) => tensors,
            Self::SingleFile(file) => file.tensors(),
        }
    }

    fn tensors_mut(&mut self) -> &mut Tensors {
        match self {
            Self::HuggingFace(tensors) => tensors,
            Self::SingleFile(file) => file.tensors_mut(),
        }
    }
}

/// A model on disk: its shape, its tensors by Hugging Face name, its tokenizer.
pub struct Checkpoint {
    path: PathBuf,
    source: Source,
    config: ModelConfig,
    /// Its `config.json`; for a single file, what that would be.
    pub json: serde_json::Value,
    /// Its `generation_config.json`; null where there is none.
    generation: serde_json::Value,
    /// Read when it is first asked for.
    tokenizer: OnceLock<Option<Arc<Tokenizer>>>,
    /// Chat template of another model, where it has none.
    taken_template: OnceLock<ChatSource>,
    /// Token that ends answers, besides those of its files.
    stop_token: OnceLock<u32>,
    zeros: Zeros,
}

impl Checkpoint {
    /// Opens a Hugging Face directory, a GGUF or an APR file and checks that it holds every tensor of its
    /// configuration in the right shape. No weights are read.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        Self::open_with(path, |config| Parameters::new(config).list)
    }

    /// Like [`Self::open`], of a directory that holds of a model's weights its head alone, or none.
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn open_without_layers(path: &Path, has_head: bool) -> Result<Self, CheckpointError> {
        let head = |config: &ModelConfig| has_head.then(|| Parameter::head(config));
        Self::open_with(path, |config| head(config).into_iter().collect())
    }

    fn open_with(path: &Path, expected: impl FnOnce(&ModelConfig) -> Vec<Parameter>) -> Result<Self, CheckpointError> {
        let (mut source, json, generation) = match Source::of_file(path)? {
            Some((single, json)) => (single, json, serde_json::Value::Null),
            None if path.is_dir() => {
                let (tensors, json) = Tensors::open(path)?;
                (Source::HuggingFace(tensors), json, huggingface::generation_config(path)?)
            }
            None => return Err(missing::model(path)),
        };
        let config_path = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let config = ModelConfig::from_json(&json.to_string());
        let config = config.map_err(|error| CheckpointError::of(&config_path, error))?;
        if let (Source::HuggingFace(_), unread @ [_, ..]) = (&source, &unread_fields(&json, config.family)[..]) {
            let (path, family, fields) = (config_path.display(), config.family, unread.join(", "));
            note(format_args!("{path}: not read, and in transformers no fields of {family}: {fields}"));
        }
        if config.tied {
            source.tensors_mut().tie();
        }
        let (tokenizer, taken_template, zeros) = (OnceLock::new(), OnceLock::new(), Zeros::default());
        let (path, stop_token) = (path.to_owned(), OnceLock::new());
        let checkpoint = Self { path, source, config, json, generation, tokenizer, taken_template, stop_token, zeros };
        tensors::check(&checkpoint, &expected(checkpoint.config()))?;
        Ok(checkpoint)
    }

    /// Returns the path that it was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn tensors(&self) -> &Tensors {
        self.source.tensors()
    }

    /// The dtype of a model that is this one but for some values: that of its tensors, bf16 for those in blocks. Of a single
    /// file, whose vectors are F32 whatever its matrices are, that of its matrices; F32 where dense tensors differ.
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
        if is_zero { self.zeros.found(&self.path, &parameter.name) } else { Ok(()) }
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

    /// The model's own tokenizer, if it has one.
    ///
    /// # Errors
    /// [`CheckpointError`] where there is one and it does not read.
    pub fn tokenizer(&self) -> Result<Option<&Arc<Tokenizer>>, CheckpointError> {
        if self.tokenizer.get().is_none() {
            let read = self.read_tokenizer()?.map(Arc::new);
            // Another thread that was first has read the same.
            let _ = self.tokenizer.set(read);
        }
        Ok(self.tokenizer.get().and_then(Option::as_ref))
    }

    fn read_tokenizer(&self) -> Result<Option<Tokenizer>, CheckpointError> {
        let (path, read) = match (&self.source, self.tokenizer_file()) {
            (Source::SingleFile(file), _) if file.has_tokenizer() => {
                (self.path.clone(), Tokenizer::new(&self.path, || file.tokenizer(), &AddedTokens::default()))
            }
            (Source::HuggingFace(_), Some(path)) => {
                let bytes = input::read(&path, tokenizer::MOST_BYTES).map_err(CheckpointError::io("read", &path))?;
                if let Some(what) = Disguise::of_text(&bytes) {
                    return Err(CheckpointError::disguised(&path, what));
                }
                let read = Tokenizer::parse(&path, without_mark(&bytes), &self.added_tokens()?);
                (path, read)
            }
            _ => return Ok(None),
        };
        read.map(Some).map_err(|reason| CheckpointError::of(&path, reason))
    }

    /// What files beside its `tokenizer.json` add to that.
    ///
    /// # Errors
    /// [`CheckpointError`] where one does not read.
    pub(crate) fn added_tokens(&self) -> Result<AddedTokens, CheckpointError> {
        if self.tokenizer_file().is_none() {
            return Ok(AddedTokens::default());
        }
        AddedTokens::of_directory(&self.path).map_err(|(path, reason)| CheckpointError::of(&path, reason))
    }

    /// Its `tokenizer.json`, if it has one.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        let path = self.path.join("tokenizer.json");
        (matches!(self.source, Source::HuggingFace(_)) && path.exists()).then_some(path)
    }

    /// The model's own chat template, if it has one, as of a date.
    ///
    /// # Errors
    /// [`CheckpointError`] where there is one and it does not read.
    pub fn chat_template(&self, date: Option<NaiveDate>) -> Result<Option<Arc<ChatTemplate>>, CheckpointError> {
        self.chat_source()?.map(|source| self.parse_template(&source, date)).transpose()
    }

    /// The text of its chat template, if it has one, and what that names.
    ///
    /// # Errors
    /// [`CheckpointError`] where a file of it does not read.
    pub fn chat_source(&self) -> Result<Option<ChatSource>, CheckpointError> {
        match &self.source {
            Source::HuggingFace(_) => {
                let source = ChatSource::of_directory(&self.path);
                source.map_err(|(path, reason)| CheckpointError::of(&path, reason))
            }
            Source::SingleFile(_) => Ok(ChatSource::of_config(&self.tokenizer_config()?)),
        }
    }

    /// Takes the chat template of a model with the same tokenizer, which a model that is written of this one has, too: its text, and
    /// the tokens that it names where this one's configuration does not.
    ///
    /// # Errors
    /// [`CheckpointError`] where that does not read.
    pub fn take_template(&self, source: &ChatSource) -> Result<&ChatSource, CheckpointError> {
        let source = source.beside(self.tokenizer_config()?);
        Ok(self.taken_template.get_or_init(|| source))
    }

    /// The chat template that it has taken from another model.
    pub fn taken_template(&self) -> Option<&ChatSource> {
        self.taken_template.get()
    }

    /// The value of its `tokenizer_config.json`, or of what a single file says for it; null where there is none.
    ///
    /// # Errors
    /// [`CheckpointError`] where it does not read.
    pub(crate) fn tokenizer_config(&self) -> Result<serde_json::Value, CheckpointError> {
        match &self.source {
            Source::HuggingFace(_) => {
                let config = chat::tokenizer_config(&self.path);
                config.map_err(|(path, reason)| CheckpointError::of(&path, reason))
            }
            Source::SingleFile(file) => {
                let tokenizer = self.tokenizer()?;
                let config = file.tokenizer_config(&|id| tokenizer?.token(id));
                config.map_err(|fault| fault.at(&self.path))
            }
        }
    }

    /// Parses a template of this model.
    ///
    /// # Errors
    /// [`CheckpointError`] where it does not parse.
    pub(crate) fn parse_template(
        &self,
        source: &ChatSource,
        date: Option<NaiveDate>,
    ) -> Result<Arc<ChatTemplate>, CheckpointError> {
        ChatTemplate::new(source, date).map_err(|reason| {
            CheckpointError::of(&self.path, format_args!("its chat template does not parse: {reason}"))
        })
    }

    /// The token that ends a document, by `eos_token_id` of the configuration: of a list the tokenizer's if that is in
    /// it, else the first. Where it names none, the tokenizer's, else by `generation_config.json`.
    ///
    /// # Errors
    /// [`CheckpointError`] where the tokenizer does not read.
    pub fn eos_token(&self) -> Result<Option<u32>, CheckpointError> {
        let (named, own) = (eos_ids(&self.json), self.tokenizers_eos()?);
        Ok(match named.first() {
            Some(first) => Some(own.filter(|own| named.contains(own)).unwrap_or(*first)),
            None => own.or_else(|| eos_ids(&self.generation).first().copied()),
        })
    }

    /// The tokens that end an answer: those of `generation_config.json`, else of the configuration, else of the
    /// tokenizer; and the one of `--stop-token`.
    pub fn eos_tokens(&self) -> Vec<u32> {
        let mut ids = eos_ids(&self.generation);
        if ids.is_empty() {
            ids = eos_ids(&self.json);
        }
        if ids.is_empty() {
            // One that does not read is refused where text is read.
            ids.extend(self.tokenizers_eos().ok().flatten());
        }
        ids.extend(self.stop_token.get());
        ids.into_iter().unique().collect()
    }

    /// The `eos_token` of its tokenizer.
    fn tokenizers_eos(&self) -> Result<Option<u32>, CheckpointError> {
        let Some(tokenizer) = self.tokenizer()? else { return Ok(None) };
        let token = chat::token(&self.tokenizer_config()?, "eos_token");
        Ok(token.and_then(|token| tokenizer.id(&token)))
    }

    /// Ends answers by a token besides, also of a model that is written with its tokenizer.
    pub fn take_stop_token(&self, id: u32) {
        self.stop_token.get_or_init(|| id);
    }

    /// The `generation_config.json` of a model that is written with its tokenizer, if it is another.
    pub(crate) fn changed_generation_config(&self) -> Option<serde_json::Value> {
        self.stop_token.get()?;
        let mut json = Some(self.generation.clone()).filter(serde_json::Value::is_object).unwrap_or_else(|| json!({}));
        json["eos_token_id"] = self.eos_tokens().into();
        Some(json)
    }

    /// Returns a note on a model without such a token.
    pub fn note_of_endless(&self) -> Option<String> {
        let model = self.path().display();
        let note = format!("the model {model} names no token that ends a text: --max-tokens ends each completion");
        self.eos_tokens().is_empty().then_some(note)
    }

    /// The files that hold its weights, in name order.
    pub fn weight_files(&self) -> Vec<PathBuf> {
        self.tensors().files.iter().map(|(path, _)| path.clone()).collect()
    }
}

/// The tokens of `eos_token_id`.
fn eos_ids(json: &serde_json::Value) -> Vec<u32> {
    let eos = json.get("eos_token_id").unwrap_or(&serde_json::Value::Null);
    let ids = eos.as_array().map_or(std::slice::from_ref(eos), Vec::as_slice);
    ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}

/// SHA-256 over the weight files of a model.
///
/// # Errors
/// [`CheckpointError`] where a file cannot be read.
pub fn digest(paths: &[PathBuf]) -> Result<Digest, CheckpointError> {
    let digests: Result<Vec<Digest>, CheckpointError> =
        paths.par_iter().map(|path| files::digest(path).map_err(CheckpointError::io("read", path))).collect();
    let digests = digests?;
    match &digests[..] {
        [one] => Ok(*one),
        many => Ok(Digest::of_parts("precast.shards", many.iter().map(|digest| &digest.0[..]))),
    }
}

/// Has the page cache forget files; one that cannot be opened is nobody's loss.
pub fn forget(paths: &[PathBuf]) {
    paths.iter().filter_map(|path| WeightFile::open(path).ok()).for_each(|file| file.forget());
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

/// The `config.json` of a model without its weights: of a directory, a GGUF or an APR file, or the file itself.
///
/// # Errors
/// [`CheckpointError`] where there is none.
pub fn config_json(path: &Path) -> Result<String, CheckpointError> {
    if let Some((_, json)) = Source::of_file(path)? {
        return Ok(json.to_string());
    }
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    if !file.exists() {
        return Err(missing::model(path));
    }
    read_text(&file).map_err(CheckpointError::io("read", &file))
}

/// A model without its weights: its shape, and in which formats its matrices are stored. A bare `config.json` stands for a
/// file in the mix of Q4_K_M.
///
/// # Errors
/// [`CheckpointError`] where there is none, or the configuration cannot be followed.
pub fn shape(path: &Path) -> Result<(ModelConfig, Formats), CheckpointError> {
    if !path.exists() {
        return Err(missing::shape(path));
    }
    missing::refuse_adapter_in(path)?;
    let config = ModelConfig::from_json(&config_json(path)?).map_err(|error| CheckpointError::of(path, error))?;
    let formats = match Source::of_file(path)? {
        Some((source, _)) => source.tensors().blocks(),
        None if path.is_file() => Formats::q4_k_m(&config),
        None => Formats::dense(),
    };
    Ok((config, formats))
}
