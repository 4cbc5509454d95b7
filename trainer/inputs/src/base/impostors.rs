//! Files that are not what their names say, and text as a program reads it.

use std::io::{self, Read};
use std::path::Path;

use precast_system::input;

/// Files that people save or clone in place of the one they want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disguise {
    /// A clone without git-lfs holds it.
    #[error("is a git-lfs pointer, not the file itself: run `git lfs pull` where it was cloned, or download the file")]
    LfsPointer,
    /// A browser or `curl` saves it where a login is asked for or nothing is found.
    #[error("is a web page, not the file itself: a login or an error page was saved under its name; download it again")]
    WebPage,
    /// Text of another encoding.
    #[error("is UTF-16 text: save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")]
    Utf16,
    /// Text of another encoding.
    #[error("is UTF-32 text: save it as UTF-8 (iconv -f UTF-32 -t UTF-8)")]
    Utf32,
}

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Bytes at the start of a file that [`Disguise::of`] looks at.
const LOOKED_AT_BYTES: u64 = 512;

/// Most bytes of a text that is read whole: the largest indices of models have 20 MB.
const MOST_TEXT_BYTES: u64 = 256 << 20;

impl Disguise {
    /// Recognizes a file of any kind by its first bytes; none if they are not known.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let starts_with = |text: &str, prefix: &str| {
            text.as_bytes().get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        let start = &bytes[..bytes.len().min(LOOKED_AT_BYTES as usize)];
        let start = start.strip_prefix(BYTE_ORDER_MARK).unwrap_or(start).utf8_chunks().next()?.valid().trim_start();
        if start.starts_with("version https://git-lfs.github.com/spec/") {
            return Some(Self::LfsPointer);
        }
        let is_page = ["<!doctype html", "<html"].iter().any(|prefix| starts_with(start, prefix));
        is_page.then_some(Self::WebPage)
    }

    /// Returns the kind of a text file by its first bytes, if it is known: the marks of other encodings are numbers
    /// elsewhere.
    pub fn of_text(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => Some(Self::Utf32),
            [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => Some(Self::Utf16),
            _ => Self::of(bytes),
        }
    }

    /// Returns the kind of the file at a path; none, too, if it cannot be read.
    pub fn at(path: &Path) -> Option<Self> {
        let mut start = Vec::new();
        input::open(path).and_then(|file| file.take(LOOKED_AT_BYTES).read_to_end(&mut start)).ok()?;
        Self::of(&start)
    }
}

/// The bytes of a text file without its byte order mark, which editors on Windows put before UTF-8.
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes)
}

/// Reads a text file, without its byte order mark.
///
/// # Errors
/// Any I/O error; one of kind [`io::ErrorKind::InvalidData`] says what the file is instead.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = input::read(path, MOST_TEXT_BYTES)?;
    let invalid = |error: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, format!("it {error}"));
    if let Some(disguise) = Disguise::of_text(&bytes) {
        return Err(invalid(&disguise));
    }
    let text = std::str::from_utf8(without_mark(&bytes)).map_err(|error| invalid(&format!("is not UTF-8: {error}")))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_place_of_others_are_known_by_their_first_bytes() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        let utf16 = |text: &str| [vec![0xFF, 0xFE], text.encode_utf16().flat_map(u16::to_le_bytes).collect()].concat();
        for (bytes, expected) in [
            (&pointer[..], Some(Disguise::LfsPointer)),
            (b"\n <!DOCTYPE html><html lang=en>", Some(Disguise::WebPage)),
            (b"\xEF\xBB\xBF<html>", Some(Disguise::WebPage)),
            (&utf16("{}"), Some(Disguise::Utf16)),
            (b"\xFE\xFF\0{\0}", Some(Disguise::Utf16)),
            (b"\xFF\xFE\0\0{\0\0\0", Some(Disguise::Utf32)),
            (b"\xEF\xBB\xBF{}", None),
            (b"version 3\n", None),
            (b"", None),
            (b"\x08\0\0\0\0\0\0\0{}", None),
            (b"GGUF", None),
        ] {
            assert_eq!(Disguise::of_text(bytes), expected, "{bytes:?}");
            let is_encoding = matches!(expected, Some(Disguise::Utf16 | Disguise::Utf32));
            assert_eq!(Disguise::of(bytes), expected.filter(|_| !is_encoding), "{bytes:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_encodings_are_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            read_text(file.path()).map_err(|error| error.to_string())
        };
        assert_eq!(read(b"\xEF\xBB\xBFtext").as_deref(), Ok("text"));
        assert_eq!(read(b"text").as_deref(), Ok("text"));
        assert!(read(b"\xFF\xFEt\0").unwrap_err().contains("it is UTF-16 text: save it as UTF-8"));
        assert!(read(b"t\xFF").unwrap_err().contains("it is not UTF-8"));
    }
}
