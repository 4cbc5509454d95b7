//! A tokenizer as a file's metadata, as llama.cpp's converter writes it: the inverse of what reading does.

use std::collections::HashSet;

use precast_plan::Family;
use serde_json::Value;

use super::super::key_values::KeyValues;
use super::super::shape::LLAMA;
use super::byte_level::{MERGES_KEY, PRE_KEY, name_of};
use super::json::{Added, Bpe, Json};
use super::keys::{ADD_BOS_KEY, BOS_KEY, EOS_KEY, MODEL_KEY, PADDING_KEY, TEMPLATE_KEY};
use super::sentencepiece::{self, PREFIX_KEY, Pieces, SCORES_KEY};
use super::vocabulary::{Kind, TOKENS_KEY, TYPES_KEY};
use crate::chat::ChatSource;
use crate::checkpoint::fault::Fault;

const ADD_EOS_KEY: &str = "tokenizer.ggml.add_eos_token";
const ADD_SEPARATOR_KEY: &str = "tokenizer.ggml.add_sep_token";
/// Special tokens by their names in a `tokenizer_config.json`, and the keys of their ids.
const SPECIAL: [(&str, &str); 6] = [
    ("bos_token", BOS_KEY),
    ("eos_token", EOS_KEY),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    // gguf-py spells it so.
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", PADDING_KEY),
    ("mask_token", "tokenizer.ggml.mask_token_id"),
];
/// Scores of tokens that are added to a SentencePiece vocabulary, and of ids that it has no piece for.
const ADDED_SCORE: f32 = -1000.0;
const UNUSED_SCORE: f32 = -10000.0;

/// A model's tokenizer as its files say it.
pub(in crate::checkpoint) struct Files<'a> {
    /// Its `tokenizer.json`, as it is used.
    pub json: String,
    /// Its `tokenizer_config.json`, over what `special_tokens_map.json` has.
    pub config: Value,
    /// Its `config.json`.
    pub model: &'a Value,
    /// Its `tokenizer.model`.
    pub sentencepiece: Option<Vec<u8>>,
    pub template: Option<ChatSource>,
}

/// Adds the keys of a tokenizer to those of a model with an embedding of `vocab` rows.
///
/// # Errors
/// [`Fault`] for what GGUF has no words for.
pub(in crate::checkpoint::gguf) fn write(
    keys: &mut KeyValues,
    files: &Files<'_>,
    family: &Family,
    vocab: u32,
) -> Result<(), Fault> {
    let json: Json = serde_json::from_str(&files.json).map_err(|error| wrong(error.to_string()))?;
    let prefix = files.config.get("add_prefix_space").and_then(Value::as_bool);
    if let Some(prefix) = prefix.filter(|_| family.gguf == LLAMA) {
        keys.flag(PREFIX_KEY, prefix);
    }
    match &files.sentencepiece {
        Some(bytes) => {
            let pieces = sentencepiece::pieces(bytes)?;
            write_sentencepiece(keys, files, &json, &pieces, vocab)?;
            if !pieces.prefixes && (prefix.is_none() || family.gguf != LLAMA) {
                keys.flag(PREFIX_KEY, false);
            }
        }
        None => write_byte_level(keys, &json, vocab)?,
    }
    let ends = Ends::of(&json, files)?;
    write_special(keys, files, &json, &ends, vocab);
    keys.flag(ADD_BOS_KEY, ends.begin.is_some());
    if let Some(flag) = ends.end {
        keys.flag(ADD_EOS_KEY, flag);
    }
    if let Some(flag) = ends.between {
        keys.flag(ADD_SEPARATOR_KEY, flag);
    }
    if let Some(ChatSource { default, tool_use, .. }) = &files.template {
        if let Some(tool_use) = tool_use {
            keys.string(&format!("{TEMPLATE_KEY}.tool_use"), tool_use);
            keys.strings("tokenizer.chat_templates", &["tool_use"]);
        }
        keys.string(TEMPLATE_KEY, default);
    }
    Ok(())
}

/// Writes the ids of special tokens: those that the tokenizer names, then others that `config.json` has.
fn write_special(keys: &mut KeyValues, files: &Files<'_>, json: &Json, ends: &Ends, vocab: u32) {
    let by_name = |name: &str| {
        let text = token_text(&files.config, name).or_else(|| ends.named(name))?;
        Some(json.added_tokens.iter().find(|one| one.content == text)?.id)
    };
    let by_id = |name: &str| id_of(files.model.get(format!("{name}_id"))?);
    let (named, others): (Vec<_>, Vec<_>) = SPECIAL.into_iter().partition(|(name, _)| by_name(name).is_some());
    for (name, key) in named.into_iter().chain(others) {
        if let Some(id) = by_name(name).or_else(|| by_id(name)).filter(|id| *id < vocab) {
            keys.integer(key, id);
        }
    }
}

/// The error for a tokenizer that a file cannot hold.
fn wrong(what: impl std::fmt::Display) -> Fault {
    Fault::Wrong(format!("its tokenizer cannot be written as GGUF: {what}"))
}

/// An id, or the first of several.
fn id_of(value: &Value) -> Option<u32> {
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    u32::try_from(value.as_u64()?).ok()
}

fn token_text<'a>(config: &'a Value, name: &str) -> Option<&'a str> {
    let value = config.get(name)?;
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// Tokens by id: those that no id is given to are padding.
struct Table(Vec<(String, Kind)>);

impl Table {
    fn new(vocab: u32) -> Self {
        Self((0..vocab).map(|id| (format!("[PAD{id}]"), Kind::Unused)).collect())
    }

    fn place(&mut self, id: u32, text: &str, kind: Kind) -> Result<(), Fault> {
        let rows = self.0.len();
        let outside = || wrong(format_args!("token `{text}` has the id {id} and the embedding {rows} rows"));
        *self.0.get_mut(id as usize).ok_or_else(outside)? = (text.to_owned(), kind);
        Ok(())
    }

    fn place_added(&mut self, added: &Added) -> Result<(), Fault> {
        match added.special || looks_special(&added.content) {
            true => self.place(added.id, &added.content, Kind::Control),
            // llama.cpp looks for them in the text itself.
            false => self.place(added.id, &added.content.replace('▁', " "), Kind::UserDefined),
        }
    }

    fn write_tokens(&self, keys: &mut KeyValues) {
        keys.strings(TOKENS_KEY, &self.0.iter().map(|(text, _)| text).collect::<Vec<_>>());
    }

    fn write_types(&self, keys: &mut KeyValues) {
        keys.integers(TYPES_KEY, self.0.iter().map(|(_, kind)| *kind as i32));
    }
}

/// Whether llama.cpp's converter takes an added token for a control token, whatever its file says.
fn looks_special(text: &str) -> bool {
    let within = |start, end| text.starts_with(start) && text.ends_with(end);
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || within("<|", "|>")
        || within("<｜", "｜>")
        || within("<unused", ">")
}

fn write_byte_level(keys: &mut KeyValues, json: &Json, vocab: u32) -> Result<(), Fault> {
    let kind = json.model.get("type").and_then(Value::as_str).unwrap_or("of no type");
    if kind != "BPE" {
        return Err(wrong(format_args!("it is {kind}, and GGUF has byte-level BPE and SentencePiece")));
    }
    if json.model.get("byte_fallback").and_then(Value::as_bool) == Some(true) {
        let what = "llama.cpp splits text of a SentencePiece vocabulary by the scores of its pieces, which \
            tokenizer.json \
                    does not hold: put the model's tokenizer.model beside it";
        return Err(wrong(what));
    }
    let bpe: Bpe = serde::Deserialize::deserialize(&json.model).map_err(wrong)?;
    let pre = name_of(json, &bpe).map_err(wrong)?;
    let mut table = Table::new(vocab);
    bpe.vocab.iter().try_for_each(|(text, id)| table.place(*id, text, Kind::Normal))?;
    json.added_tokens.iter().try_for_each(|added| table.place_added(added))?;
    keys.string(MODEL_KEY, "gpt2");
    keys.string(PRE_KEY, pre);
    table.write_tokens(keys);
    table.write_types(keys);
    let merges: Vec<String> = bpe.merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    if let Some(merge) = merges.iter().find(|merge| merge.matches(' ').count() != 1) {
        return Err(wrong(format_args!("a part of merge `{merge}` has a space")));
    }
    keys.strings(MERGES_KEY, &merges);
    Ok(())
}

fn write_sentencepiece(
    keys: &mut KeyValues,
    files: &Files<'_>,
    json: &Json,
    pieces: &Pieces<'_>,
    vocab: u32,
) -> Result<(), Fault> {
    let mut table = Table::new(vocab);
    let mut scores = vec![UNUSED_SCORE; vocab as usize];
    for (id, (text, score, kind)) in (0..).zip(&pieces.list) {
        table.place(id, text, *kind)?;
        scores[id as usize] = *score;
    }
    let listed = files.config.get("added_tokens_decoder").and_then(Value::as_object);
    let listed: HashSet<u32> = listed.into_iter().flatten().filter_map(|(id, _)| id.parse().ok()).collect();
    for added in &json.added_tokens {
        // A piece that is no word already is found in a text before that is split.
        let piece = pieces.list.get(added.id as usize);
        let is_said = piece.is_some_and(|(text, _, kind)| *text == added.content && *kind != Kind::Normal);
        if !is_said || listed.contains(&added.id) {
            table.place_added(added)?;
            scores[added.id as usize] = ADDED_SCORE;
        }
    }
    keys.string(MODEL_KEY, "llama");
    keys.string(PRE_KEY, "default");
    table.write_tokens(keys);
    keys.floats(SCORES_KEY, scores.into_iter());
    table.write_types(keys);
    Ok(())
}

/// What is put before and after a text.
struct Ends {
    /// The token before it.
    begin: Option<String>,
    /// Whether there is one behind it, where a file says so.
    end: Option<bool>,
    end_token: Option<String>,
    /// Whether an end or separator alone is between two texts, where a file says what is.
    between: Option<bool>,
}

impl Ends {
    fn of(json: &Json, files: &Files<'_>) -> Result<Self, Fault> {
        let mut ends = Self { begin: None, end: None, end_token: None, between: None };
        let steps = match json.post_processor.get("processors").and_then(Value::as_array) {
            Some(steps) => &steps[..],
            None => std::slice::from_ref(&json.post_processor),
        };
        for step in steps {
            match step.get("type").and_then(Value::as_str) {
                None => {}
                Some("ByteLevel") => ends.end = ends.end.or(Some(false)),
                Some("TemplateProcessing") => ends.read_template(step, files)?,
                Some(other) => return Err(wrong(format_args!("llama.cpp has no {other}"))),
            }
        }
        let said = files.config.get("add_eos_token").and_then(Value::as_bool);
        ends.end = ends.end.or(said.map(|_| false));
        Ok(ends)
    }

    /// `[begin] A [end]`, and no other.
    fn read_template(&mut self, step: &Value, files: &Files<'_>) -> Result<(), Fault> {
        let parts = step.get("single").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let text = parts.iter().position(|part| part.get("Sequence").is_some()).unwrap_or(parts.len());
        let special = |part: &Value| Some(part.get("SpecialToken")?.get("id")?.as_str()?.to_owned());
        let (before, behind) = (&parts[..text], parts.get(text + 1..).unwrap_or_default());
        if before.len() > 1 || behind.len() > 1 {
            return Err(wrong("it puts several tokens before or behind a text"));
        }
        self.begin = before.first().and_then(special);
        self.end_token = behind.first().and_then(special);
        if self.end_token.is_some() {
            self.end = Some(true);
        }
        let pair = step.get("pair").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut texts = pair.iter().enumerate().filter(|(_, part)| part.get("Sequence").is_some()).map(|(at, _)| at);
        if let (Some(first), Some(second)) = (texts.next(), texts.next())
            && let Some(between) = pair[first + 1..second].first()
        {
            let separators = ["sep_token", "eos_token"].map(|name| token_text(&files.config, name));
            let separates = separators.contains(&special(between).as_deref()) && self.end_token.is_none();
            self.between = Some(separates);
        }
        Ok(())
    }

    fn named(&self, name: &str) -> Option<&str> {
        match name {
            "bos_token" => self.begin.as_deref(),
            "eos_token" => self.end_token.as_deref(),
            _ => None,
        }
    }
}
