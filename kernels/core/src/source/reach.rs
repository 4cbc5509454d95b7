//! The parts of common headers that a source uses: the compiler gets only these, and a kernel's digest covers only
//! these. A helper added to a header changes only kernels that call it.
//!
//! A header is a sequence of items: declarations with the comments above them, and preprocessor lines. An item is used
//! if a name that it declares is mentioned by the source or by a used item; a function's, if it is called there: a
//! field, a variable or a parameter of its name is something else. An item without a recognized name is always used.
//! Anything omitted by mistake fails to compile: a digest never covers too little.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::LazyLock;

use super::words::{self, identifiers};
use crate::dtype::Dtype;
use crate::format::Block;

/// A parsed header.
pub struct Parsed {
    text: &'static str,
    items: Vec<Item>,
}

struct Item {
    lines: Range<usize>,
    declares: Declared,
    mentions: Mentions<String>,
}

enum Declared {
    /// Nothing recognized: the item is always used.
    Unknown,
    /// Nothing: the item is a comment.
    Nothing,
    /// A function, with all overloads.
    Function(String),
    Names(Vec<String>),
}

/// Names mentioned, and those among them that are called.
struct Mentions<Name> {
    all: HashSet<Name>,
    called: HashSet<Name>,
}

impl<'a, Name: From<&'a str> + Eq + std::hash::Hash> Mentions<Name> {
    fn of(text: &'a str) -> Self {
        let mut mentions = Self { all: HashSet::new(), called: HashSet::new() };
        for mention in words::mentions(text) {
            mentions.all.insert(mention.name.into());
            if mention.is_called {
                mentions.called.insert(mention.name.into());
            }
        }
        mentions
    }
}

/// Types that macros of a key may stand for, always used: sources need not mention them.
static ALWAYS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let dense = [Dtype::Bf16, Dtype::F32].map(|dtype| dtype.c_name().to_owned());
    dense.into_iter().chain(Block::ALL.map(|block| block.to_string())).collect()
});

/// Identifiers before a parenthesis that name no function.
const NO_FUNCTION: [&str; 4] = ["alignas", "__align__", "__launch_bounds__", "__attribute__"];

/// Returns the last identifier of a text, before the arguments of a template.
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

/// Parses the names that the code of an item declares.
fn declared(code: &[&str]) -> Declared {
    let mut lines = code.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).peekable();
    if lines.peek().is_some_and(|line| line.starts_with("template") && line.ends_with('>')) {
        lines.next();
    }
    let Some(first) = lines.peek().copied() else { return Declared::Nothing };
    let names = |names: Vec<&str>| match names.is_empty() {
        true => Declared::Unknown,
        false => Declared::Names(names.into_iter().map(str::to_owned).collect()),
    };
    if let Some(define) = first.strip_prefix("#define ") {
        return names(identifiers(define).take(1).collect());
    }
    let shouts = |word: &str| word.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_');
    let invoked = first.split_once('(').is_some_and(|(name, _)| shouts(name.trim()));
    if first.starts_with('#') || invoked || identifiers(first).any(|word| word == "operator") {
        return Declared::Unknown;
    }
    let kind = identifiers(first).find(|word| ["struct", "union", "class", "enum", "typedef", "using"].contains(word));
    match kind {
        Some("enum") => {
            let body = lines.flat_map(|line| line.split_once('{').map_or(line, |(_, body)| body).split(','));
            names(body.filter_map(|part| identifiers(part).next()).collect())
        }
        Some("struct" | "union" | "class") => {
            let head = first.split(['{', ';', ':']).next().unwrap_or(first);
            names(last_identifier(head).into_iter().collect())
        }
        Some("using") => names(identifiers(first).nth(1).into_iter().collect()),
        Some("typedef") => {
            let head = first.split(['{', ';']).next().unwrap_or(first);
            names(last_identifier(head).into_iter().collect())
        }
        // A function: its name stands before the parenthesis.
        _ => {
            let before = |line: &str| {
                let parts = line.match_indices('(').filter_map(|(at, _)| last_identifier(&line[..at]));
                parts.map(str::to_owned).find(|name| !NO_FUNCTION.contains(&name.as_str()))
            };
            lines.find_map(before).map_or(Declared::Unknown, Declared::Function)
        }
    }
}

/// Returns the lines of an include guard; the code between them is always parsed.
fn guard(code: &[&str]) -> Option<[usize; 3]> {
    let mut written = (0..code.len()).filter(|index| !code[*index].trim().is_empty());
    let (first, second, last) = (written.next()?, written.next()?, written.next_back()?);
    let name = code[first].trim().strip_prefix("#ifndef ")?;
    let guards = code[second].trim().strip_prefix("#define ") == Some(name) && code[last].trim() == "#endif";
    guards.then_some([first, second, last])
}

impl Parsed {
    /// Parses a header.
    pub fn new(text: &'static str) -> Self {
        let lines: Vec<&str> = text.lines().collect();
        let skeleton = words::skeleton(text);
        let code: Vec<&str> = skeleton.lines().map(str::trim).collect();
        let guard = guard(&code);
        let (mut items, mut start, mut depth, mut conditions) = (Vec::new(), 0, 0_i32, 0_i32);
        let mut close = |range: Range<usize>| {
            if !range.is_empty() {
                let declares = declared(&code[range.clone()]);
                // Items that are always used go without their comments.
                let bare = matches!(declares, Declared::Unknown);
                let comments = code[range.clone()].iter().take_while(|line| bare && line.is_empty()).count();
                let own = lines[range.clone()].join("\n");
                items.push(Item { lines: range.start + comments..range.end, declares, mentions: Mentions::of(&own) });
            }
        };
        let (mut open, mut continued) = (false, false);
        for (index, code) in code.iter().enumerate() {
            let directive = code.starts_with('#') && depth == 0;
            if directive && open && conditions == 0 && !continued {
                close(start..index);
                (start, open) = (index, false);
            }
            if guard.is_none_or(|guard| !guard.contains(&index)) {
                conditions += i32::from(code.starts_with("#if")) - i32::from(code.starts_with("#endif"));
            }
            if !(directive || continued) {
                depth += code.matches(['{', '(', '[']).count() as i32 - code.matches(['}', ')', ']']).count() as i32;
            }
            let was_directive = directive || continued;
            continued = was_directive && code.ends_with('\\');
            open |= !code.is_empty();
            let ends = if was_directive {
                !continued
            } else {
                code.ends_with([';', '}']) || code.is_empty() && lines[index].trim().is_empty()
            };
            if ends && depth == 0 && conditions == 0 {
                close(start..index + 1);
                (start, open) = (index + 1, false);
            }
        }
        close(start..lines.len());
        Self { text, items }
    }

    /// Returns the whole text.
    pub fn text(&self) -> &'static str {
        self.text
    }
}

/// Returns for each header the lines that texts use; the others are empty, so that a compiler's line numbers match the
/// file's.
pub fn used(headers: &[&Parsed], texts: &[&str]) -> Vec<String> {
    let mut mentioned: HashSet<&str> = ALWAYS.iter().map(String::as_str).collect();
    let mut called = HashSet::new();
    for of_text in texts.iter().map(|text| Mentions::<&str>::of(text)) {
        mentioned.extend(of_text.all);
        called.extend(of_text.called);
    }
    let is_used = |item: &Item, mentioned: &HashSet<&str>, called: &HashSet<&str>| match &item.declares {
        Declared::Unknown => true,
        Declared::Nothing => false,
        Declared::Function(name) => called.contains(name.as_str()),
        Declared::Names(names) => names.iter().any(|name| mentioned.contains(name.as_str())),
    };
    let mut rest: Vec<&Item> = headers.iter().flat_map(|header| &header.items).collect();
    loop {
        let before = rest.len();
        rest.retain(|item| {
            let is_used = is_used(item, &mentioned, &called);
            if is_used {
                mentioned.extend(item.mentions.all.iter().map(String::as_str));
                called.extend(item.mentions.called.iter().map(String::as_str));
            }
            !is_used
        });
        if rest.len() == before {
            break;
        }
    }
    let lines = |header: &&Parsed| -> String {
        let own: Vec<&str> = header.text.lines().collect();
        let mut text = vec![""; own.len()];
        for item in header.items.iter().filter(|item| is_used(item, &mentioned, &called)) {
            text[item.lines.clone()].copy_from_slice(&own[item.lines.clone()]);
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

    fn used_by(text: &str) -> String {
        let [header] = used(&[&Parsed::new(HEADER)], &[text]).try_into().unwrap();
        assert_eq!(header.lines().count(), HEADER.lines().count());
        header
    }

    #[test]
    fn what_is_mentioned_is_there_with_all_that_it_mentions() {
        let nothing = used_by("");
        assert!(nothing.contains("#pragma once") && nothing.contains("#include") && nothing.contains("BLOCKS 1"));
        for absent in ["square", "power", "from_float", "WARP", "TWICE", "wide_t", "people"] {
            assert!(!nothing.contains(absent), "{absent}");
        }
        assert!(nothing.contains("struct bf16") && nothing.contains("uint16_t;"), "a macro may stand for bf16");
        let twice = used_by("y = TWICE(x); // from_float");
        assert!(twice.contains("float square") && twice.contains("// Squares.") && twice.contains("float power"));
        assert!(twice.contains("    power<2>(x)") && !twice.contains("from_float"));
        assert_eq!(used_by("from_float<T>(x)").matches("from_float").count(), 2);
        assert!(used_by("WARP").contains("enum") && used_by("wide_t x;").contains("float v[4];"));
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
            used_by("power<3>(x)").lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        assert_eq!(kept("power<3>(x)"), before);
        assert!(kept("cube(x)").iter().any(|line| line.contains("cube")));
    }
}
