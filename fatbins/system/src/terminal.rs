//! Makes untrusted text (names and contents of files) safe for a terminal.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::io;

use crate::tee;

/// Most characters of a line of a message.
const MOST_CHARACTERS: usize = 4000;

/// Escapes control characters and those that change text direction, as JSON does: `\u001b`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for one in text.chars() {
        // Each is one UTF-16 unit.
        let _ = if is_hidden(one) { write!(out, "\\u{:04x}", u32::from(one)) } else { out.write_char(one) };
    }
    Cow::Owned(out)
}

/// Formats a message: [`visible`], with its lines truncated.
pub fn message(text: &str) -> String {
    let line = |line: &str| match line.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{} ... and {} bytes more", visible(&line[..end]), line.len() - end),
        None => visible(line).into_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Writes a message to standard error. A failed write (after SIGHUP, or to a full device) is ignored.
pub fn tell(line: impl Display) {
    let text = message(&line.to_string());
    tee::line(&text);
    let _ = write_line(&mut io::stderr(), text);
}

/// Writes a line in one call, so that lines of several processes do not run into each other.
fn write_line(to: &mut impl io::Write, mut text: String) -> io::Result<()> {
    text.push('\n');
    to.write_all(text.as_bytes())
}

fn is_hidden(one: char) -> bool {
    // Embeddings, overrides and isolates; the marks U+200E and U+200F change no direction.
    one.is_control() && !matches!(one, '\n' | '\t') || matches!(one, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        assert!(matches!(visible("a\tb\nשלום\u{200f} é"), Cow::Borrowed(_)));
        assert_eq!(visible("\u{1b}[31mred\r\u{9b}"), "\\u001b[31mred\\u000d\\u009b");
        assert_eq!(visible("a\u{202e}b\u{2066}c\u{2069}"), "a\\u202eb\\u2066c\\u2069");
        // Escaped JSON parses to the original text.
        let json = visible(&serde_json::to_string("a\u{202e}b").unwrap()).into_owned();
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "a\u{202e}b");
    }

    #[test]
    fn a_line_is_written_in_one_call() {
        struct Calls(Vec<Vec<u8>>);
        impl io::Write for Calls {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.push(bytes.to_vec());
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut calls = Calls(Vec::new());
        write_line(&mut calls, "error: one\nand two".to_owned()).unwrap();
        assert_eq!(calls.0, [b"error: one\nand two\n"]);
    }

    #[test]
    fn a_line_of_a_message_is_cut() {
        let long = "é".repeat(1 << 20);
        let cut = message(&format!("first\n{long}\nlast"));
        let expected = format!("first\n{} ... and {} bytes more\nlast", "é".repeat(4000), (2 << 20) - 8000);
        assert_eq!(cut, expected);
        assert_eq!(message(&"x".repeat(4000)), "x".repeat(4000));
    }
}
