//! The vocabulary: texts of the tokens, and of what kind they are.

use std::collections::HashMap;

use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;

use super::super::metadata::{Metadata, required};
use crate::checkpoint::fault::Fault;

pub(super) const TOKENS_KEY: &str = "tokenizer.ggml.tokens";
pub(super) const TYPES_KEY: &str = "tokenizer.ggml.token_type";
/// Longer than any token of a real vocabulary; bounds the work that a vocabulary takes.
const LONGEST_TOKEN_BYTES: usize = 1024;

/// What a token is, as SentencePiece and llama.cpp number it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::checkpoint::gguf) enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    /// Padding: no text becomes this token.
    Unused = 5,
    Byte = 6,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Normal, Self::Unknown, Self::Control, Self::UserDefined, Self::Unused, Self::Byte];

    /// By its number.
    pub(super) fn of(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as i32 == code)
    }
}

/// Tokens by id, and ids by text. Texts are not empty and, but for unused tokens, differ.
pub(super) struct Vocabulary<'a> {
    tokens: Vec<(&'a str, Kind)>,
    ids: HashMap<&'a str, u32>,
}

impl<'a> Vocabulary<'a> {
    /// Reads the vocabulary of a file, given whole.
    pub(super) fn read(metadata: &Metadata, file: &'a [u8]) -> Result<Self, Fault> {
        let texts = required(TOKENS_KEY, metadata.strings(file, TOKENS_KEY)?)?;
        let codes = required(TYPES_KEY, metadata.integers(file, TYPES_KEY)?)?;
        check_len(metadata, TYPES_KEY, codes.len(), texts.len())?;
        if u32::try_from(texts.len()).is_err() {
            return Err(metadata.refuse(TOKENS_KEY, format!("{} items long", texts.len()), "ids have 32 bits"));
        }
        let mut vocabulary = Self { tokens: Vec::with_capacity(texts.len()), ids: HashMap::new() };
        for (index, (text, code)) in texts.into_iter().zip(codes).enumerate() {
            let refuse = |key, reason| metadata.refuse_item(key, index, reason);
            let kind =
                Kind::of(code).ok_or_else(|| refuse(TYPES_KEY, format!("is {code}: types of tokens are 1 to 6")))?;
            vocabulary.tokens.push((text, kind));
            if kind == Kind::Unused {
                continue;
            }
            if text.is_empty() || text.len() > LONGEST_TOKEN_BYTES {
                let reason = format!("is {} bytes, expected 1 to {LONGEST_TOKEN_BYTES}", text.len());
                return Err(refuse(TOKENS_KEY, reason));
            }
            if let Some(first) = vocabulary.ids.insert(text, index as u32) {
                return Err(refuse(TOKENS_KEY, format!("is {text:?}, as is item {first}")));
            }
        }
        Ok(vocabulary)
    }

    /// Text of a token in use.
    pub(super) fn text(&self, id: u64) -> Option<&'a str> {
        let (text, kind) = self.tokens.get(usize::try_from(id).ok()?)?;
        (*kind != Kind::Unused).then_some(text)
    }

    /// Id of a token in use.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Id and text of every token in use, by id.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (u32, &'a str)> {
        let tokens = (0..).zip(&self.tokens);
        tokens.filter(|(_, (_, kind))| *kind != Kind::Unused).map(|(id, (text, _))| (id, *text))
    }

    /// Text and kind of every token, by id.
    pub(super) fn all(&self) -> impl ExactSizeIterator<Item = (&'a str, Kind)> {
        self.tokens.iter().copied()
    }

    /// The tokens in use, as a BPE model has them.
    pub(super) fn bpe(&self) -> Vocab {
        self.in_use().map(|(id, text)| (text.to_owned(), id)).collect()
    }

    /// The token for text that no other stands for, if there is one.
    pub(super) fn unknown(&self) -> Option<&'a str> {
        self.tokens.iter().find(|(_, kind)| *kind == Kind::Unknown).map(|(text, _)| *text)
    }

    /// Tokens that are found in a text before it is normalized and split. All but user-defined ones are special:
    /// decoding leaves them out where it is asked to.
    pub(super) fn added_tokens(&self) -> impl Iterator<Item = AddedToken> {
        self.tokens.iter().filter_map(|(text, kind)| match kind {
            Kind::Control | Kind::Unknown => Some(AddedToken::from(*text, true).normalized(false)),
            Kind::UserDefined => Some(AddedToken::from(*text, false).normalized(false)),
            Kind::Normal | Kind::Unused | Kind::Byte => None,
        })
    }
}

/// Checks that a list has one item a token.
pub(super) fn check_len(metadata: &Metadata, key: &str, found: usize, tokens: usize) -> Result<(), Fault> {
    if found == tokens {
        return Ok(());
    }
    Err(metadata.refuse(key, format!("{found} items long"), format!("{TOKENS_KEY} has {tokens}")))
}
