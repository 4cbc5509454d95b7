//! How a model reads text: its tokenizer and its chat template.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use precast_system::input;

use super::source::Source;
use super::{Checkpoint, CheckpointError};
use crate::added_tokens::AddedTokens;
use crate::base::impostors::{Disguise, without_mark};
use crate::chat::{self, ChatSource, ChatTemplate, ChatVariables};
use crate::tokenizer::{self, Tokenizer};

/// Reads the tokenizer of a directory, with what files beside it add.
///
/// # Errors
/// [`CheckpointError`] where there is none, or one does not read.
pub fn read_tokenizer(directory: &Path) -> Result<Tokenizer, CheckpointError> {
    let path = directory.join("tokenizer.json");
    let bytes = input::read(&path, tokenizer::MOST_BYTES).map_err(CheckpointError::io("read", &path))?;
    if let Some(what) = Disguise::of_text(&bytes) {
        return Err(CheckpointError::disguised(&path, what));
    }
    let read = Tokenizer::parse(&path, without_mark(&bytes), &added_tokens(directory)?);
    read.map_err(|reason| CheckpointError::of(&path, reason))
}

fn added_tokens(directory: &Path) -> Result<AddedTokens, CheckpointError> {
    AddedTokens::of_directory(directory).map_err(|(path, reason)| CheckpointError::of(&path, reason))
}

impl Checkpoint {
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
            (Source::HuggingFace(_), Some(_)) => return read_tokenizer(&self.path).map(Some),
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
        added_tokens(&self.path)
    }

    /// Its `tokenizer.json`, if it has one.
    pub fn tokenizer_file(&self) -> Option<PathBuf> {
        let path = self.path.join("tokenizer.json");
        (matches!(self.source, Source::HuggingFace(_)) && path.exists()).then_some(path)
    }

    /// The model's own chat template, if it has one.
    ///
    /// # Errors
    /// [`CheckpointError`] where there is one and it does not read.
    pub fn chat_template(&self, variables: ChatVariables) -> Result<Option<Arc<ChatTemplate>>, CheckpointError> {
        self.chat_source()?.map(|source| self.parse_template(&source, variables)).transpose()
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

    /// Takes the chat template of a model with the same tokenizer, which a model that is written of this one has, too:
    /// its text, and the tokens that it names where this one's configuration does not.
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
        variables: ChatVariables,
    ) -> Result<Arc<ChatTemplate>, CheckpointError> {
        ChatTemplate::new(source, variables).map_err(|reason| {
            CheckpointError::of(&self.path, format_args!("its chat template does not parse: {reason}"))
        })
    }
}
