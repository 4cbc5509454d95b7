//! The tokenizer that a file describes in its metadata: a byte-level vocabulary and its merges. What splits text is not
//! in the file: it follows from the family, if all models of that split alike.

use std::collections::{HashMap, HashSet};

use precast_plan::Family;
use tokenizers::models::bpe::{Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use super::metadata::{Metadata, missing, refuse};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::gguf::splits_as_qwen2;

const VOCABULARY: &str = "tokenizer.vocabulary";
const MERGES: &str = "tokenizer.merges";
/// Longer than any token of a real vocabulary.
const LONGEST_TOKEN_BYTES: usize = 1024;

/// Whether there is one that can be built.
pub(super) fn is_there(metadata: &Metadata, family: &Family) -> bool {
    let given = |key| !matches!(metadata.strings(key), Ok(None));
    family.model_type.starts_with("qwen") && given(VOCABULARY) && given(MERGES)
}

/// See [`super::Apr::tokenizer`].
pub(super) fn tokenizer(metadata: &Metadata) -> Result<Tokenizer, Fault> {
    let missing = |key| missing(key, "a part of the tokenizer");
    let texts = metadata.strings(VOCABULARY)?.ok_or_else(|| missing(VOCABULARY))?;
    let mut ids: HashMap<&str, u32> = HashMap::new();
    for (id, text) in texts.iter().enumerate() {
        let item = || refuse(VOCABULARY, &(*text).into(), format!("item {id} must be 1 to 1024 bytes, and there once"));
        let known = text.is_empty() || text.len() > LONGEST_TOKEN_BYTES || ids.insert(text, id as u32).is_some();
        if known {
            return Err(item());
        }
    }
    let list = metadata.strings(MERGES)?.ok_or_else(|| missing(MERGES))?;
    let mut merges = Merges::new();
    let mut made: HashSet<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
    for merge in list {
        let known = |(left, right): &(&str, &str)| {
            [left, right, &[*left, right].concat()[..]].into_iter().all(|text| ids.contains_key(text))
        };
        let pair = merge.split_once(' ').filter(known);
        let (left, right) = pair.ok_or_else(|| {
            refuse(MERGES, &merge.into(), "expected two tokens that make a third, with a space between")
        })?;
        made.insert([left, right].concat());
        merges.push((left.to_owned(), right.to_owned()));
    }
    let vocab: Vocab = ids.iter().map(|(text, id)| ((*text).to_owned(), *id)).collect();
    let mut tokenizer = splits_as_qwen2(vocab, merges).map_err(Fault::tokenizer)?;
    // What no merge makes is found in a text before it is split: control tokens, in the order of their ids.
    let added = texts.iter().filter(|text| !made.contains(**text));
    tokenizer
        .add_tokens(added.map(|text| AddedToken::from(*text, true).normalized(false)))
        .map_err(Fault::tokenizer)?;
    Ok(tokenizer)
}
