//! What of a common header a source uses: the compiler gets that and no more, and so the digest of a kernel is of that and
//! no more. A helper that is added to a header moves only kernels that mention it.
//!
//! A header is a sequence of items: declarations with the comments above them, and preprocessor lines. An item is used where
//! a name that it declares is mentioned by the source or by an item that is used; what declares no name that is recognised
//! always is. What this leaves out by mistake does not compile: it is never a digest that says too little.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use crate::dtype::Dtype;
use crate::format::Block;

/// A header, read once.
pub struct Parsed {
    lines: Vec<&'static str>,
    items: Vec<Item>,
}

/// Some lines of it.
struct Item {
    lines: Range<usize>,
    /// What they declare; nothing for what is always used.
    names: Vec<&'static str>,
    /// What they mention.
    words: Vec<&'static str>,
}

/// What the macros of a key may stand for: types that no source needs to mention by name.
static ALWAYS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let dense = [Dtype::Bf16, Dtype::F32].map(|dtype| dtype.c_name().to_owned());
    dense.into_iter().chain(Block::ALL.map(|block| block.to_string())).collect()
});

/// Identifiers that come before a parenthesis and name no function.
const NO_FUNCTION: [&str; 4] = ["alignas", "__align__", "__launch_bounds__", "__attribute__"];

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// The last identifier of a text, past the arguments of a template.
fn last_identifier(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let name = match text.strip_suffix('>') {
        None => text,
        Some(_) => {
            let mut depth = 0;
            let opens = text.char_indices().rev().find(|(_, c)| {
                depth += i32::from(*c == '>') - i32::from(*c == '<');
                depth == 0
            });
            &text[..opens?.0]
        }
    };
    let start = name.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    identifiers(&name[start..]).next()
}

/// The names that an item declares.
fn names(lines: &[&'static str]) -> Vec<&'static str> {
    let mut lines = lines.iter().map(|line| code(line).trim()).filter(|line| !line.is_empty()).peekable();
    if lines.peek().is_some_and(|line| line.starts_with("template") && line.ends_with('>')) {
        lines.next();
    }
    let Some(first) = lines.peek().copied() else { return Vec::new() };
    if let Some(define) = first.strip_prefix("#define ") {
        return identifiers(define).take(1).collect();
    }
    let shouts = |word: &str| word.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_');
    let invoked = first.split_once('(').is_some_and(|(name, _)| shouts(name.trim()));
    if first.starts_with('#') || invoked || identifiers(first).any(|word| word == "operator") {
        return Vec::new();
    }
    let kind = identifiers(first).find(|word| ["struct", "union", "class", "enum", "typedef", "using"].contains(word));
    match kind {
        Some("enum") => {
            let body = lines.flat_map(|line| line.split_once('{').map_or(line, |(_, body)| body).split(','));
            body.filter_map(|part| identifiers(part).next()).collect()
        }
        Some("struct" | "union" | "class") => {
            let head = first.split(['{', ';', ':']).next().unwrap_or(first);
            last_identifier(head).into_iter().collect()
        }
        Some("using") => identifiers(first).nth(1).into_iter().collect(),
        Some("typedef") => last_identifier(first.trim_end_matches(';')).into_iter().collect(),
        // A function: what stands before its parenthesis.
        _ => {
            let before = |line: &'static str| {
                let parts = line.match_indices('(').map(|(at, _)| last_identifier(&line[..at]));
                parts.flatten().find(|name| !NO_FUNCTION.contains(name))
            };
            lines.find_map(before).into_iter().collect()
        }
    }
}

impl Parsed {
    /// Reads a header.
    pub fn new(text: &'static str) -> Self {
        let lines: Vec<&'static str> = text.lines().collect();
        let (mut items, mut start, mut depth, mut conditions) = (Vec::new(), 0, 0_i32, 0_i32);
        let mut close = |range: Range<usize>| {
            if !range.is_empty() {
                let own = &lines[range.clone()];
                let words: Vec<&'static str> = own.iter().flat_map(|line| identifiers(code(line))).collect();
                // Comments alone are for people.
                let names = if words.is_empty() && own.iter().all(|line| code(line).trim().is_empty()) {
                    vec!["//"]
                } else {
                    names(own)
                };
                // What is always there is there without its comments.
                let comments = own.iter().take_while(|line| names.is_empty() && code(line).trim().is_empty()).count();
                items.push(Item { lines: range.start + comments..range.end, names, words });
            }
        };
        let (mut open, mut continued) = (false, false);
        for (index, line) in lines.iter().enumerate() {
            let code = code(line).trim();
            let directive = code.starts_with('#') && depth == 0;
            if directive && open && conditions == 0 && !continued {
                close(start..index);
                (start, open) = (index, false);
            }
            conditions += i32::from(code.starts_with("#if")) - i32::from(code.starts_with("#endif"));
            if !(directive || continued) {
                depth += code.matches(['{', '(', '[']).count() as i32 - code.matches(['}', ')', ']']).count() as i32;
            }
            let was_directive = directive || continued;
            continued = was_directive && code.ends_with('\\');
            open |= !code.is_empty();
            let ends = if was_directive {
                !continued
            } else {
                code.ends_with([';', '}']) || code.is_empty() && line.trim().is_empty()
            };
            if ends && depth == 0 && conditions == 0 {
                close(start..index + 1);
                (start, open) = (index + 1, false);
            }
        }
        close(start..lines.len());
        Self { lines, items }
    }
}

/// Of each header the lines that texts use; the others are empty, so that a compiler counts lines as people do.
pub fn used(headers: &[&Parsed], texts: &[&str]) -> Vec<String> {
    let mentioned = texts.iter().flat_map(|text| text.lines()).flat_map(|line| identifiers(code(line)));
    let mut words: HashSet<&str> = mentioned.chain(ALWAYS.iter().map(String::as_str)).collect();
    let mut rest: Vec<&Item> = headers.iter().flat_map(|header| &header.items).collect();
    loop {
        let before = rest.len();
        rest.retain(|item| {
            let is_used = item.names.is_empty() || item.names.iter().any(|name| words.contains(name));
            if is_used {
                words.extend(&item.words);
            }
            !is_used
        });
        if rest.len() == before {
            break;
        }
    }
    let kept = |item: &Item| item.names.is_empty() || item.names.iter().any(|name| words.contains(name));
    let lines = |header: &&Parsed| -> String {
        let mut text = vec![""; header.lines.len()];
        for item in header.items.iter().filter(|item| kept(item)) {
            text[item.lines.clone()].copy_from_slice(&header.lines[item.lines.clone()]);
        }
        text.iter().flat_map(|line| [line, "\n"]).collect()
    };
    headers.iter().map(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "\
// For people.
#pragma once
#include \"types.h\"

typedef unsigned short uint16_t;

struct bf16 {
    uint16_t bits;
};

// Squares.
__device__ float square(float x) { return x * x; }
template <uint32_t n> __device__ __forceinline__ float power(float x) {
    float y = 1.0f;
    for (uint32_t i = 0; i < n; i++) y *= square(x);
    return y;
}
template <typename T> __device__ T from_float(float x);
template <> __device__ bf16 from_float<bf16>(float x) { return {}; }

enum : uint32_t { WARP = 32 };
#define TWICE(x) \\
    power<2>(x)
struct alignas(16) wide_t {
    float v[4];
};
#ifndef BLOCKS
#define BLOCKS 1
#endif
";

    fn of(text: &str) -> String {
        let [header] = used(&[&Parsed::new(HEADER)], &[text]).try_into().unwrap();
        assert_eq!(header.lines().count(), HEADER.lines().count());
        header
    }

    #[test]
    fn what_is_mentioned_is_there_with_all_that_it_mentions() {
        let nothing = of("");
        assert!(nothing.contains("#pragma once") && nothing.contains("#include") && nothing.contains("BLOCKS 1"));
        for absent in ["square", "power", "from_float", "WARP", "TWICE", "wide_t", "people"] {
            assert!(!nothing.contains(absent), "{absent}");
        }
        assert!(nothing.contains("struct bf16") && nothing.contains("uint16_t;"), "a macro may stand for bf16");
        let twice = of("y = TWICE(x); // from_float");
        assert!(twice.contains("float square") && twice.contains("// Squares.") && twice.contains("float power"));
        assert!(twice.contains("    power<2>(x)") && !twice.contains("from_float"));
        assert_eq!(of("from_float<T>(x)").matches("from_float").count(), 2);
        assert!(of("WARP").contains("enum") && of("wide_t x;").contains("float v[4];"));
    }

    #[test]
    fn an_item_that_nobody_mentions_changes_nothing() {
        let more: &'static str = HEADER.to_owned().leak();
        let more = format!("{more}\n// New.\n__device__ float cube(float x) {{ return x * square(x); }}\n").leak();
        let kept = |text: &str| -> Vec<String> {
            let used = used(&[&Parsed::new(more)], &[text]).remove(0);
            used.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        let before: Vec<String> =
            of("power<3>(x)").lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        assert_eq!(kept("power<3>(x)"), before);
        assert!(kept("cube(x)").iter().any(|line| line.contains("cube")));
    }
}
