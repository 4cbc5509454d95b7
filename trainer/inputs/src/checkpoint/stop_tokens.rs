//! The tokens that end a text of a model.

use itertools::Itertools;
use serde_json::json;

use super::{Checkpoint, CheckpointError};
use crate::chat;

impl Checkpoint {
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
}

/// The tokens of `eos_token_id`.
fn eos_ids(json: &serde_json::Value) -> Vec<u32> {
    let eos = json.get("eos_token_id").unwrap_or(&serde_json::Value::Null);
    let ids = eos.as_array().map_or(std::slice::from_ref(eos), Vec::as_slice);
    ids.iter().filter_map(|id| u32::try_from(id.as_u64()?).ok()).collect()
}
