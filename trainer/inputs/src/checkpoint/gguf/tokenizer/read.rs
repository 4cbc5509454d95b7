//! Reads the tokenizer that a file describes.

use serde_json::json;
use tokenizers::{PostProcessorWrapper, Tokenizer};

use super::byte_level;
use super::keys::{ADD_BOS_KEY, BOS_KEY, MODEL_KEY};
use super::sentencepiece::{self};
use super::vocabulary::{TOKENS_KEY, Vocabulary};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::gguf::metadata::{Metadata, required};

type Build = fn(&Metadata, &[u8], &Vocabulary<'_>) -> Result<Tokenizer, Fault>;
type Begins = fn(&Metadata) -> Result<bool, Fault>;

/// Whether there is one. llama.cpp's `no_vocab` says that there is none.
pub(in crate::checkpoint::gguf) fn is_there(metadata: &Metadata) -> bool {
    match metadata.string(MODEL_KEY) {
        Ok(name) => name.is_some_and(|name| name != "no_vocab"),
        Err(_) => true,
    }
}

/// See [`crate::checkpoint::gguf::Gguf::tokenizer`].
pub(in crate::checkpoint::gguf) fn tokenizer(metadata: &Metadata, file: &[u8]) -> Result<Tokenizer, Fault> {
    // Whether every text begins with a token where the file does not say so.
    let (build, begins): (Build, Begins) = match required(MODEL_KEY, metadata.string(MODEL_KEY)?)?.as_str() {
        "gpt2" => (byte_level::tokenizer, byte_level::begins),
        "llama" => (sentencepiece::tokenizer, |_| Ok(true)),
        other => return Err(metadata.refuse(MODEL_KEY, other, "known are gpt2 and llama")),
    };
    let vocabulary = Vocabulary::read(metadata, file)?;
    let mut tokenizer = build(metadata, file, &vocabulary)?;
    tokenizer.add_tokens(vocabulary.added_tokens()).map_err(Fault::tokenizer)?;
    let begins = match metadata.flag(ADD_BOS_KEY)? {
        Some(begins) => begins,
        None => begins(metadata)? && metadata.integer(BOS_KEY)?.is_some(),
    };
    if begins {
        tokenizer.with_post_processor(Some(begin_token(metadata, &vocabulary)?));
    }
    Ok(tokenizer)
}

/// See [`crate::checkpoint::gguf::Gguf::sentencepiece`].
pub(in crate::checkpoint::gguf) fn sentencepiece(metadata: &Metadata, file: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    match metadata.string(MODEL_KEY)?.as_deref() {
        Some("llama") => sentencepiece::model(metadata, file, &Vocabulary::read(metadata, file)?),
        _ => Ok(None),
    }
}

/// Puts the begin token before a sequence, and before either of a pair. Built from the form it has in a
/// `tokenizer.json`, which takes any text of a token.
fn begin_token(metadata: &Metadata, vocabulary: &Vocabulary<'_>) -> Result<PostProcessorWrapper, Fault> {
    let id = required(BOS_KEY, metadata.integer(BOS_KEY)?)?;
    let outside = || metadata.refuse(BOS_KEY, id, format!("{TOKENS_KEY} has no such token in use"));
    let text = vocabulary.text(id).ok_or_else(outside)?;
    let part = |sequence, type_id| {
        [
            json!({"SpecialToken": {"id": text, "type_id": type_id}}),
            json!({"Sequence": {"id": sequence, "type_id": type_id}}),
        ]
    };
    let pair = [part("A", 0), part("B", 1)].concat();
    let template = json!({
        "type": "TemplateProcessing",
        "single": part("A", 0),
        "pair": pair,
        "special_tokens": {text: {"id": text, "ids": [id], "tokens": [text]}},
    });
    serde_json::from_value(template).map_err(|error| Fault::tokenizer(error.into()))
}
