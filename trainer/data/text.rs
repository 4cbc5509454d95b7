//! Documents of text, through a tokenizer.

use std::borrow::Cow;
use std::path::Path;

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::rows::{Columns, RowFault, TEXT, fault_of};
use super::{DataError, Reader};
use crate::disguise::without_mark;

/// Longest document: the tokenizers library takes about sixty times its size for a while.
const MOST_BYTES: usize = 256 << 20;

/// The documents of a file, in its bytes where they stand there as they are.
pub(super) struct Documents<'a>(Vec<Cow<'a, str>>);

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
    input_ids: Option<IgnoredAny>,
}

impl<'a> Documents<'a> {
    /// A text file is one document.
    pub fn text(path: &Path, bytes: &'a [u8]) -> Result<Self, DataError> {
        Ok(Self(vec![utf8(path, bytes)?.into()]))
    }

    /// One `{"text": ...}` object a line; empty lines are passed over.
    pub fn jsonl(path: &Path, bytes: &'a [u8]) -> Result<Self, DataError> {
        let lines = utf8(path, bytes)?.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let documents = lines.map(|(index, line)| {
            let (path, line_number, columns) = (path.to_owned(), index + 1, || Columns::of(line));
            match serde_json::from_str::<Line<'_>>(line) {
                Ok(Line { text, input_ids: None }) => Ok(text),
                other => Err(match (columns(), other) {
                    (Err(reason), _) => DataError::Jsonl { path, line: line_number, reason },
                    (Ok(TEXT), Err(error)) => DataError::Jsonl { path, line: line_number, reason: fault_of(&error) },
                    (Ok(found), _) => {
                        let fault = RowFault::Mixed { expected: TEXT, found };
                        DataError::Row { path, line: line_number, fault }
                    }
                }),
            }
        });
        documents.collect::<Result<_, _>>().map(Self)
    }

    /// Token ids of each document, in order.
    pub fn tokenize(self, path: &Path, reader: Reader<'_>) -> Result<Vec<Vec<u32>>, DataError> {
        self.0.into_par_iter().map(|text| tokenize(path, &text, reader)).collect()
    }
}

/// The ids of a document, ended once: some tokenizers end it themselves.
fn tokenize(path: &Path, text: &str, reader: Reader<'_>) -> Result<Vec<u32>, DataError> {
    let path = || path.to_owned();
    let tokenizer = reader.tokenizer.ok_or_else(|| DataError::NoTokenizer { path: path() })?;
    if text.len() > MOST_BYTES {
        return Err(DataError::LongDocument { path: path(), bytes: text.len(), most: MOST_BYTES });
    }
    let mut ids = tokenizer.encode(text).map_err(|reason| DataError::Tokenizer { path: path(), reason })?;
    ids.extend(reader.eos.filter(|eos| ids.last() != Some(eos)));
    Ok(ids)
}

/// Text, without a byte order mark.
pub(super) fn utf8<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a str, DataError> {
    std::str::from_utf8(without_mark(bytes)).map_err(|error| DataError::Utf8 { path: path.to_owned(), error })
}
