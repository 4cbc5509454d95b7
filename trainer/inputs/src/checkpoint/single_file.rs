//! Models of one file, GGUF or APR: header read, weights on disk.

use serde_json::{Value, json};
use tokenizers::Tokenizer;

use super::fault::Fault;
use super::store::Tensors;
use crate::chat::ChatSource;

/// A file of a whole model: its shape, its tensors by Hugging Face name, its tokenizer.
pub(super) trait SingleFile: Send + Sync {
    fn tensors(&self) -> &Tensors;
    fn tensors_mut(&mut self) -> &mut Tensors;

    /// The model's shape as the value of a Hugging Face `config.json`.
    ///
    /// # Errors
    /// [`Fault`] for keys that are missing or of the wrong type, and for settings that would change the mathematics.
    fn config(&self) -> Result<Value, Fault>;

    /// True if the file has a tokenizer that can be built.
    fn has_tokenizer(&self) -> bool;

    /// The tokenizer, from the file's own metadata.
    ///
    /// # Errors
    /// [`Fault`] for keys that are missing, lists that do not go together, and tokenizers that are not known.
    fn tokenizer(&self) -> Result<Tokenizer, Fault>;

    /// The tokenizer as a `tokenizer.model` has it, where it is one of SentencePiece: with the scores of its pieces,
    /// which no
    /// `tokenizer.json` holds and llama.cpp reads text by.
    ///
    /// # Errors
    /// [`Fault`] as [`SingleFile::tokenizer`].
    fn sentencepiece(&self) -> Result<Option<Vec<u8>>, Fault> {
        Ok(None)
    }

    /// Begin and end token.
    ///
    /// # Errors
    /// [`Fault`] where one is no number.
    fn token_ids(&self) -> Result<[Option<u64>; 2], Fault>;

    /// The token that fills sequences, where the file names it.
    ///
    /// # Errors
    /// [`Fault`] where it is no number.
    fn padding_id(&self) -> Result<Option<u64>, Fault> {
        Ok(None)
    }

    /// The chat template beside the tokenizer.
    ///
    /// # Errors
    /// [`Fault`] where it is no text.
    fn chat_template(&self) -> Result<Option<String>, Fault>;

    /// The chat template for conversations with tools, where that is one of its own.
    ///
    /// # Errors
    /// [`Fault`] where it is no text.
    fn tool_use_template(&self) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    /// The value of a `tokenizer_config.json` beside a tokenizer: its class, the begin, end and padding tokens and the
    /// chat template, where the file has them.
    ///
    /// # Errors
    /// [`Fault`] of ids and template.
    fn tokenizer_config(&self, token: &dyn Fn(u32) -> Option<String>) -> Result<Value, Fault> {
        let mut config = json!({ "tokenizer_class": "PreTrainedTokenizerFast" });
        let [bos, eos] = self.token_ids()?;
        for (name, id) in [("bos_token", bos), ("eos_token", eos), ("pad_token", self.padding_id()?)] {
            if let Some(token) = id.and_then(|id| token(id.try_into().ok()?)) {
                config[name] = token.into();
            }
        }
        if let Some(default) = self.chat_template()? {
            let tool_use = self.tool_use_template()?;
            ChatSource { default, tool_use, constants: Vec::new() }.write_into(&mut config);
        }
        Ok(config)
    }
}
