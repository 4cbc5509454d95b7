//! SentencePiece's tables of characters in a `tokenizer.json`, base64 of a trie behind its size. The tokenizers library
//! makes room for a trie of any size that a table says, before it reads it.

use serde::Deserialize;
use serde_json::Value;

/// The letters of base64, by value.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A `tokenizer.json`, as far as it has such tables.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    normalizer: Value,
}

/// Refuses a file with a table that says more than it has.
///
/// # Errors
/// Why the file does not read.
pub(crate) fn check(json: &[u8]) -> Result<(), String> {
    let file: File = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    check_tables(&file.normalizer)
}

/// Looks into a normalizer, and into those that it is a sequence of.
fn check_tables(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match value {
            Value::String(text) if name == "precompiled_charsmap" => check_table(text),
            value => check_tables(value),
        }),
        Value::Array(values) => values.iter().try_for_each(check_tables),
        _ => Ok(()),
    }
}

fn check_table(base64: &str) -> Result<(), String> {
    // What is no base64 the library refuses itself.
    let Some(said) = trie_bytes(base64.as_bytes()) else { return Ok(()) };
    let found = base64.len() / 4 * 3 - base64.bytes().rev().take_while(|letter| *letter == b'=').count().min(2);
    if u64::from(said) + 4 <= found as u64 {
        return Ok(());
    }
    Err(format!(
        "normalizer: precompiled_charsmap says a trie of {said} bytes and has {found} with its size: the file is \
        damaged, fetch it again"
    ))
}

/// The number of four bytes that the text begins with, the least first.
fn trie_bytes(base64: &[u8]) -> Option<u32> {
    let value = |letter: &u8| ALPHABET.iter().position(|one| one == letter);
    let bits = base64.get(..6)?.iter().try_fold(0, |bits, letter| Some(bits << 6 | value(letter)? as u64))?;
    Some(((bits >> 4) as u32).swap_bytes())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::added_tokens::AddedTokens;
    use crate::tokenizer::Tokenizer;

    fn read(normalizer: &Value) -> Result<(), String> {
        let json = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": normalizer,
            "pre_tokenizer": null, "post_processor": null, "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        });
        Tokenizer::parse(Path::new("t"), json.to_string().as_bytes(), &AddedTokens::default()).map(drop)
    }

    #[test]
    fn a_table_is_not_larger_than_its_file() {
        let table = |text: &str| json!({"type": "Precompiled", "precompiled_charsmap": text});
        for text in ["/////w==", "/////wAAAAA=", "BQAAAAAAAAA="] {
            for normalizer in [table(text), json!({"type": "Sequence", "normalizers": [{"type": "NFC"}, table(text)]})]
            {
                let error = read(&normalizer).unwrap_err();
                assert!(error.contains("precompiled_charsmap says a trie of "), "{error}");
            }
        }
        // A trie of one word, and nothing that it names.
        read(&table("BAAAAAAAAAA=")).unwrap();
        read(&Value::Null).unwrap();
        assert!(read(&table("*")).is_err());
    }

    #[test]
    fn the_size_is_read_as_the_library_reads_it() {
        for (text, bytes) in [("/////w==", u32::MAX), ("BAAAAA==", 4), ("AQIDBA==", 0x0403_0201)] {
            assert_eq!(trie_bytes(text.as_bytes()), Some(bytes));
        }
        assert_eq!((trie_bytes(b"/////"), trie_bytes(b"####w=")), (None, None));
    }
}
