//! Documents of text, through a tokenizer.

use std::path::Path;

use rayon::prelude::*;
use serde::Deserialize;

use super::{DataError, Reader};
use crate::disguise::without_mark;

/// The documents of a file.
pub(super) struct Documents(Vec<String>);

#[derive(Deserialize)]
struct Line {
    text: String,
}

impl Documents {
    /// A text file is one document.
    pub fn text(path: &Path, bytes: &[u8]) -> Result<Self, DataError> {
        Ok(Self(vec![utf8(path, bytes)?.to_owned()]))
    }

    /// One `{"text": ...}` object a line; empty lines are passed over.
    pub fn jsonl(path: &Path, bytes: &[u8]) -> Result<Self, DataError> {
        let lines = utf8(path, bytes)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let documents = lines.map(|(index, line)| match serde_json::from_str::<Line>(line) {
            Ok(line) => Ok(line.text),
            Err(error) => Err(DataError::Jsonl { path: path.to_owned(), line: index + 1, reason: error.to_string() }),
        });
        documents.collect::<Result<_, _>>().map(Self)
    }

    /// Token ids of each document, in order.
    pub fn tokenize(self, path: &Path, reader: Reader<'_>) -> Result<Vec<Vec<u32>>, DataError> {
        let tokenizer = reader.tokenizer.ok_or_else(|| DataError::NoTokenizer { path: path.to_owned() })?;
        let tokenize = |text: String| match tokenizer.encode_fast(text, true) {
            Ok(encoding) => Ok(encoding.get_ids().iter().copied().chain(reader.eos).collect()),
            Err(error) => Err(DataError::Tokenizer { path: path.to_owned(), reason: error.to_string() }),
        };
        self.0.into_par_iter().map(tokenize).collect()
    }
}

/// Text, without a byte order mark.
fn utf8<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, DataError> {
    std::str::from_utf8(without_mark(bytes)).map_err(|error| DataError::Utf8 { path: path.to_owned(), error })
}
