//! Tokenizes CUDA text: separates code from comments, and finds the names that it mentions.

/// Kind of a piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Blanks and ends of lines.
    Space,
    /// A comment, without the end of its line.
    Comment,
    /// A string or a character, with its quotes.
    Literal,
    /// An identifier, a keyword or a number.
    Word,
    /// One character of anything else.
    Sign,
}

/// A name in a text, except after `.` and `->`: those belong to a type, not to a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mention<'a> {
    /// Text of the name.
    pub name: &'a str,
    /// True if arguments follow and the text itself does not declare the name: it may be a function's.
    pub is_called: bool,
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// True if a word is no number.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Returns the identifiers of a text without comments.
pub fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c)).filter(|word| is_name(word))
}

/// Returns the bytes of a literal, up to its closing quote, or the end of its line.
fn literal_bytes(text: &str, quote: char) -> usize {
    let mut escaped = true;
    let end = text.char_indices().find(|(_, c)| {
        let ends = [quote, '\n'].contains(c) && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |(at, c)| at + usize::from(c == quote))
}

/// Returns the bytes of a raw string behind its first quote: `x(..)x"`.
fn raw_bytes(text: &str) -> usize {
    let ends = format!("){}\"", text.split('(').next().unwrap_or_default());
    text.find(&ends).map_or(text.len(), |at| at + ends.len())
}

/// Returns the first piece of a text.
pub fn piece(text: &str) -> Option<(Piece, &str)> {
    let run = |is_in: fn(char) -> bool| text.find(|c: char| !is_in(c)).unwrap_or(text.len());
    let (piece, bytes) = match text.chars().next()? {
        '/' if text.starts_with("//") => (Piece::Comment, run(|c| c != '\n')),
        '/' if text.starts_with("/*") => (Piece::Comment, text[2..].find("*/").map_or(text.len(), |at| at + 4)),
        quote @ ('"' | '\'') => (Piece::Literal, literal_bytes(text, quote)),
        c if c.is_whitespace() => (Piece::Space, run(char::is_whitespace)),
        // A `'` in a number separates digits.
        c if c.is_ascii_digit() => (Piece::Word, run(|c| is_of_word(c) || c == '\'')),
        c if is_of_word(c) => match text.split_at(run(is_of_word)) {
            (word, rest) if word.ends_with('R') && rest.starts_with('"') => {
                (Piece::Literal, word.len() + 1 + raw_bytes(&rest[1..]))
            }
            (word, _) => (Piece::Word, word.len()),
        },
        c => (Piece::Sign, c.len_utf8()),
    };
    Some((piece, &text[..bytes]))
}

/// Splits a text into pieces.
pub fn pieces(mut text: &str) -> impl Iterator<Item = (Piece, &str)> {
    std::iter::from_fn(move || {
        let (piece, own) = piece(text)?;
        text = &text[own.len()..];
        Some((piece, own))
    })
}

/// Returns a text's pieces selected by `shown`, and only the line ends of others.
fn shown(text: &str, shown: impl Fn(Piece) -> bool) -> String {
    let write = |(piece, own): (Piece, &str)| match shown(piece) {
        true => own.to_owned(),
        false => [" "].into_iter().chain(own.matches('\n')).collect(),
    };
    pieces(text).map(write).collect()
}

/// Returns a text without comments, line by line.
pub fn code(text: &str) -> String {
    shown(text, |piece| piece != Piece::Comment)
}

/// Returns a text without comments and literals, line by line.
pub fn skeleton(text: &str) -> String {
    shown(text, |piece| !matches!(piece, Piece::Comment | Piece::Literal))
}

/// Words before an expression; any other word before a name declares it.
const NO_TYPES: [&str; 6] = ["return", "else", "do", "case", "throw", "new"];

/// True if the leading `<` opens the arguments of a template, followed by those of a function.
fn is_template_call(signs: &[&str]) -> bool {
    let mut depth = 0;
    let end = signs.iter().position(|sign| {
        depth += i32::from(*sign == "<") - i32::from(*sign == ">");
        depth == 0 || [";", "{", "}"].contains(sign)
    });
    end.is_some_and(|end| signs[end] == ">" && signs.get(end + 1) == Some(&"("))
}

/// Returns words and signs; the end of a preprocessor line is a `;`.
fn signs(text: &str) -> Vec<&str> {
    let (mut all, mut starts, mut directive) = (Vec::new(), true, false);
    for (piece, own) in pieces(text) {
        match piece {
            Piece::Space if own.contains('\n') => {
                if all.last() == Some(&"\\") {
                    all.pop();
                } else if directive {
                    all.push(";");
                    directive = false;
                }
                starts = true;
            }
            Piece::Word | Piece::Sign | Piece::Literal => {
                directive |= starts && own == "#";
                starts = false;
                all.push(own);
            }
            Piece::Space | Piece::Comment => {}
        }
    }
    all
}

/// Returns the names that a text mentions, with repetitions.
pub fn mentions(text: &str) -> Vec<Mention<'_>> {
    let signs = signs(text);
    let before = |index: usize, distance: usize| index.checked_sub(distance).map_or("", |at| signs[at]);
    let mention = |(index, name): (usize, &&'_ str)| {
        let (last, first) = (before(index, 1), before(index, 2));
        let is_member = last == "." || [first, last] == ["-", ">"];
        if !is_name(name) || is_member {
            return None;
        }
        let is_declared = is_name(last) && !NO_TYPES.contains(&last) && first != "define";
        let is_qualified = [first, last] == [":", ":"];
        let has_arguments = match signs.get(index + 1) {
            Some(&"(") => true,
            Some(&"<") => is_template_call(&signs[index + 1..]),
            _ => false,
        };
        Some((index, has_arguments && !is_declared && !is_qualified))
    };
    let found: Vec<(usize, bool)> = signs.iter().enumerate().filter_map(mention).collect();
    found.into_iter().map(|(index, is_called)| Mention { name: signs[index], is_called }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_text_without_comments_line_by_line() {
        let text = "a /* b\nc */ d // e\n\"// f\" '\"' g\n";
        assert_eq!(code(text), "a  \n d  \n\"// f\" '\"' g\n");
        assert_eq!(skeleton(text), "a  \n d  \n    g\n");
        assert_eq!(code("\"\\\"//\" // a"), "\"\\\"//\"  ");
        assert_eq!(code("/*/ a */#error can't\n1'000 // b"), " #error can't\n1'000  ");
        assert_eq!(code("u8R\"x(\n//)\")x\" // a"), "u8R\"x(\n//)\")x\"  ");
    }

    #[test]
    fn a_function_is_called_where_nothing_else_has_its_name() {
        let called = |text| -> Vec<String> {
            let called = mentions(text).into_iter().filter(|mention| mention.is_called);
            called.map(|mention| mention.name.to_owned()).collect()
        };
        for text in ["f(1)", "return f(x);", "f<2>(x)", "f < vector<T, 2>, 3 > (x)", "y = -f\n(x);", "#define A f(1)"] {
            assert_eq!(called(text), ["f"], "{text}");
        }
        assert_eq!(called("#define A 1\nf(x)\n#define B(x) \\\n g(x)"), ["f", "g"]);
        let others = [
            "float f = 1;",
            "uint64_t f[16];",
            "p.f",
            "p->f(1)",
            "vector<T, 1>::f(x)",
            "float f(float x);",
            "for (f = 0; f < n; f++) a[(f)] = f > 0;",
            "\"f(1)\" // f(1)",
        ];
        for text in others {
            assert!(!called(text).contains(&"f".to_owned()), "{text}");
        }
        assert!(!mentions("p.f + p->f").iter().any(|mention| mention.name == "f"));
    }
}
