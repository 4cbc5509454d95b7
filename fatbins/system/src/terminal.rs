//! Text of others on a terminal: names of files and what files hold.

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::io::{self, Write as _};

use crate::tee;

/// Characters of a line: what is longer is no message.
const MOST_CHARACTERS: usize = 4000;

/// Text whose control characters, and those that turn the direction of what follows, are written as JSON writes them: `\u001b`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for one in text.chars() {
        // Each is one unit of UTF-16.
        let _ = if is_hidden(one) { write!(out, "\\u{:04x}", u32::from(one)) } else { out.write_char(one) };
    }
    Cow::Owned(out)
}

/// A message: [`visible`], and each of its lines cut.
pub fn message(text: &str) -> String {
    let line = |line: &str| match line.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{} ... and {} bytes more", visible(&line[..end]), line.len() - end),
        None => visible(line).into_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Writes a message to standard error. Nobody may be left to read it, as after SIGHUP, or a file have no room for it: that ends
/// nothing.
pub fn tell(line: impl Display) {
    let text = message(&line.to_string());
    tee::line(&text);
    let _ = writeln!(io::stderr(), "{text}");
}

fn is_hidden(one: char) -> bool {
    // Embeddings, overrides and isolates; the marks U+200E and U+200F turn nothing.
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
        // In a text of JSON it is what it was.
        let json = visible(&serde_json::to_string("a\u{202e}b").unwrap()).into_owned();
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), "a\u{202e}b");
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
