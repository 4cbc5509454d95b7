//! Tokens that `tokenizer_config.json` or `added_tokens.json` adds to a tokenizer, as transformers 5 adds them
//! (`TokenizersBackend.__init__`).

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tokenizers::AddedToken;

use crate::base::impostors::read_text;
use crate::members;

/// Its name beside a `tokenizer.json`.
const NAME: &str = "tokenizer_config.json";
/// The names of special tokens, before there was [`DECODER`].
const SPECIAL: &str = "special_tokens_map.json";
/// Tokens and their ids, before there was [`DECODER`].
const ADDED: &str = "added_tokens.json";
/// Tokens with their ids.
const DECODER: &str = "added_tokens_decoder";
/// Special tokens by names that every tokenizer has, in their order.
pub(crate) const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
/// Lists of special tokens, the first of which that is there counts.
const EXTRA: [&str; 2] = ["extra_special_tokens", "additional_special_tokens"];

/// What a configuration adds, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AddedTokens {
    /// With the ids that the configuration gives them, ascending.
    pub by_id: Vec<(u32, AddedToken)>,
    /// Those of `added_tokens.json`, ascending: added where the tokenizer has not added one of the same text.
    pub older: Vec<(u32, AddedToken)>,
    /// Those that it names (`eos_token`, ...) or lists as special: added where the tokenizer has not added one of the
    /// same text.
    pub special: Vec<AddedToken>,
}

impl AddedTokens {
    /// By the files in a directory; nothing where there are none.
    ///
    /// # Errors
    /// The one that does not read, and why.
    pub fn of_directory(directory: &Path) -> Result<Self, (PathBuf, String)> {
        let read = |name: &str| -> Result<Vec<(String, Value)>, (PathBuf, String)> {
            let path = directory.join(name);
            if !path.exists() {
                return Ok(Vec::new());
            }
            let text = read_text(&path).map_err(|error| (path.clone(), error.to_string()))?;
            // In their order tokens without ids get theirs.
            let mut json = serde_json::Deserializer::from_str(&text);
            let members = members::in_order(&mut json, "an object").and_then(|members| json.end().map(|()| members));
            members.map_err(|error| (path, error.to_string()))
        };
        let mut config = read(NAME)?;
        let mut older = Vec::new();
        if config.iter().all(|(name, _)| name != DECODER) {
            // Files of before there was one.
            let map = read(SPECIAL)?;
            config.retain(|(name, _)| map.iter().all(|(other, _)| other != name));
            config.extend(map);
            older = read(ADDED)?;
        }
        let added = Self::of_config(&config).map_err(|reason| (directory.join(NAME), reason))?;
        added.with_older(older).map_err(|reason| (directory.join(ADDED), reason))
    }

    /// These and those of an `added_tokens.json`.
    fn with_older(mut self, older: Vec<(String, Value)>) -> Result<Self, String> {
        for (text, id) in older {
            let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
            let number = number.ok_or_else(|| format!("`{text}`: the id {id} is no number of a token"))?;
            let is_special = self.special.iter().any(|token| token.content == text);
            self.older.push((number, AddedToken::from(text, is_special)));
        }
        self.older.sort_by_key(|(id, _)| *id);
        Ok(self)
    }

    fn of_config(config: &[(String, Value)]) -> Result<Self, String> {
        let named = named(config);
        let mut by_id = Vec::new();
        for (id, value) in member(config, DECODER).and_then(Value::as_object).into_iter().flatten() {
            let wrong = |what: &str| format!("{DECODER}: `{id}`: {what}");
            let number: u32 = id.parse().map_err(|_| wrong("an id is a number"))?;
            let mut token = token(value, false).ok_or_else(|| wrong("a token is an object with its content"))?;
            token.special |= named.iter().any(|named| named.content == token.content);
            by_id.push((number, token));
        }
        by_id.sort_by_key(|(id, _)| *id);
        let mut special = named;
        special.extend(extra(config));
        special.retain(|token| by_id.iter().all(|(_, other)| other.content != token.content));
        Ok(Self { by_id, older: Vec::new(), special })
    }

    /// Adds them to a tokenizer: ids are those behind its vocabulary, whatever the configuration says. Returns what
    /// people should know of tokens whose ids differ.
    ///
    /// # Errors
    /// What the library says.
    pub fn add_to(&self, tokenizer: &mut tokenizers::Tokenizer) -> Result<Vec<String>, String> {
        let added = tokenizer.get_added_tokens_decoder();
        let mut texts: HashSet<&str> = added.values().map(|token| &*token.content).collect();
        let by_id = self.by_id.iter().map(|(_, token)| token);
        let others = self.older.iter().map(|(_, token)| token).chain(&self.special);
        let others = others.filter(|token| texts.insert(&token.content));
        let tokens: Vec<AddedToken> = by_id.chain(others).cloned().collect();
        tokenizer.add_tokens(tokens).map_err(|error| error.to_string())?;
        let named = [(NAME, &self.by_id), (ADDED, &self.older)];
        let named = named.into_iter().flat_map(|(file, tokens)| tokens.iter().map(move |token| (file, token)));
        let moved = named.filter_map(|(file, (id, token))| {
            let text = &token.content;
            let found = tokenizer.token_to_id(text).filter(|found| found != id)?;
            Some(format!(
                "{file} gives `{text}` the id {id}, and behind the vocabulary it gets {found}, as in transformers"
            ))
        });
        Ok(moved.collect())
    }
}

/// A token, as text or as an object about it.
fn token(value: &Value, is_special: bool) -> Option<AddedToken> {
    let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    let special = is_special || flag("special").unwrap_or(false);
    let token = AddedToken::from(text, special);
    let [single_word, lstrip, rstrip] = ["single_word", "lstrip", "rstrip"].map(|name| flag(name).unwrap_or(false));
    Some(AddedToken {
        normalized: flag("normalized").unwrap_or(token.normalized),
        single_word,
        lstrip,
        rstrip,
        ..token
    })
}

/// The special tokens that have names: those of every tokenizer, and those of this one's own.
fn named(config: &[(String, Value)]) -> Vec<AddedToken> {
    let of_all = NAMES.into_iter().filter_map(|name| token(member(config, name)?, true));
    let is_own = |name: &str| name.ends_with("_token") && !NAMES.contains(&name);
    let own = config.iter().filter(|(name, _)| is_own(name));
    of_all.chain(own.filter_map(|(_, value)| token(value, true))).collect()
}

/// The special tokens of a list, or of names that no tokenizer has.
fn extra(config: &[(String, Value)]) -> Vec<AddedToken> {
    let lists = EXTRA.iter().filter_map(|name| member(config, name));
    let lists = lists.map(|value| match value {
        Value::Array(list) => list.iter().collect(),
        Value::Object(map) => map.values().collect(),
        _ => Vec::new(),
    });
    let values = lists.into_iter().find(|list: &Vec<&Value>| !list.is_empty());
    values.into_iter().flatten().filter_map(|value| token(value, true)).collect()
}

fn member<'a>(config: &'a [(String, Value)], name: &str) -> Option<&'a Value> {
    config.iter().rev().find(|(one, _)| one == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::tokenizer::{SpecialTokens, Tokenizer};

    /// A configuration, and what transformers makes of texts with it.
    #[derive(Deserialize)]
    struct Case {
        config: String,
        /// An `added_tokens.json`.
        added: String,
        ids: Vec<Vec<u32>>,
    }

    #[derive(Deserialize)]
    struct Cases {
        tokenizer: Value,
        texts: Vec<String>,
        cases: Vec<Case>,
    }

    fn read(tokenizer: &str, config: &str, added: &str) -> Result<Tokenizer, String> {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(NAME), config).unwrap();
        std::fs::write(directory.path().join(ADDED), added).unwrap();
        let added = AddedTokens::of_directory(directory.path());
        let added = added.map_err(|(path, reason)| format!("{}: {reason}", path.file_name().unwrap().display()))?;
        Tokenizer::parse(Path::new("tokenizer.json"), tokenizer.as_bytes(), &added)
    }

    fn cases() -> Cases {
        serde_json::from_str(&std::fs::read_to_string("../../tests/fixtures/tokenizers/added.json").unwrap()).unwrap()
    }

    #[test]
    fn tokens_are_added_as_transformers_adds_them() {
        let Cases { tokenizer, texts, cases } = cases();
        let tokenizer = tokenizer.to_string();
        for Case { config, added, ids } in cases {
            let found = read(&tokenizer, &config, &added).unwrap();
            let found = texts.iter().map(|text| found.encode(text, SpecialTokens::Omit).unwrap());
            assert_eq!(found.collect::<Vec<_>>(), ids, "{config} {added}");
        }
    }

    #[test]
    fn an_id_that_a_token_does_not_get_is_said() {
        let tokenizer = cases().tokenizer.to_string();
        let notes = |config: &str| read(&tokenizer, config, "{}").unwrap().notes;
        assert_eq!(notes(r#"{"added_tokens_decoder": {"10": {"content": "<think>"}}}"#), [""; 0]);
        let moved = notes(r#"{"added_tokens_decoder": {"12": {"content": "<think>"}}}"#);
        let said =
            "tokenizer.json: tokenizer_config.json gives `<think>` the id 12, and behind the vocabulary it gets 10";
        assert!(moved.len() == 1 && moved[0].starts_with(said), "{moved:?}");
    }

    #[test]
    fn what_is_wrong_with_a_configuration_is_said() {
        let wrong =
            ["{}", "{", "[]", r#"{"added_tokens_decoder": {"x": "<a>"}}"#, r#"{"added_tokens_decoder": {"7": {}}}"#];
        insta::assert_snapshot!(wrong.map(|config| read("{}", config, r#"{"<a>": "1"}"#).err().unwrap()).join("\n"));
    }
}
