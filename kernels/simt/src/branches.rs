//! Lines of a program's sources that no sample executes, whole or in part. g++ begins each block of code with a call.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};
use precast_core::Source;
use precast_core::source::words;

use crate::error::CompileError;
use crate::report::SOURCES;

/// Options under which each block begins with a call. Each function has a section of its own, so that [`CALLED_ALONE`]
/// leaves out those that nothing calls.
pub(crate) const TRACE: &[&str] = &["-fsanitize-coverage=trace-pc", "-ffunction-sections"];
/// Option of the linker beside [`TRACE`].
pub(crate) const CALLED_ALONE: &str = "-Wl,--gc-sections";
/// Function that is called.
const CALLED: &str = "__sanitizer_cov_trace_pc";

/// A file, a line in it, and a part of that.
pub(crate) type CodePlace = (String, u32, LinePart);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LinePart {
    /// A block by the compiler's number, as of a branch and what follows.
    Block(u32),
    /// The inlined call that has so many before it.
    Call(u32),
}

/// A block of code, and whether it was executed.
pub(crate) struct CodeBlock {
    /// Place of its first statement, of inlined code in the function; none in the machine.
    pub written: Option<CodePlace>,
    /// The inlined calls that it begins.
    pub calls: Vec<CodePlace>,
    pub executed: bool,
}

/// Lines of all programs.
#[derive(Default)]
pub(crate) struct Branches(Mutex<BTreeMap<(String, u32), Line>>);

/// A line that begins blocks or calls, and whether each was executed.
struct Line {
    parts: BTreeMap<LinePart, bool>,
    text: String,
}

impl Branches {
    /// Adds the blocks of a program of a source.
    pub fn add(&self, source: &Source, blocks: impl IntoIterator<Item = CodeBlock>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for CodeBlock { written, calls, executed } in blocks {
            // A call of what traps is a trap.
            let is_trap = written.as_ref().and_then(|place| text(source, place)).is_some_and(|text| traps(&text));
            for place in written.into_iter().chain(calls.into_iter().filter(|_| !is_trap)) {
                let Some(text) = text(source, &place) else { continue };
                let (file, number, part) = place;
                let line = lines.entry((file, number)).or_insert(Line { parts: BTreeMap::new(), text });
                *line.parts.entry(part).or_default() |= executed;
            }
        }
    }

    /// Returns `file:line: text` of each line with a part that no sample executes, but for traps.
    pub fn unexecuted(&self) -> Vec<String> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = lines.iter().filter(|(_, line)| !line.parts.values().all(|executed| *executed));
        let named = missing.filter(|(_, line)| !traps(&line.text)).map(|((file, number), line)| {
            let part = if line.parts.values().any(|executed| *executed) { " (a part of it)" } else { "" };
            format!("{file}:{number}: {}{part}", line.text)
        });
        named.collect()
    }
}

/// Returns a line of a source or one of its headers; none of other files.
fn text(source: &Source, (name, number, _): &CodePlace) -> Option<String> {
    let is_named =
        |header: &str| name.strip_suffix(header).is_some_and(|folder| folder.is_empty() || folder.ends_with('/'));
    let header = source.headers.iter().filter(|(header, _)| is_named(header)).max_by_key(|(header, _)| header.len());
    let text = (*name == source.file()).then_some(source.text).or(header.map(|(_, text)| *text))?;
    Some(text.lines().nth((*number as usize).saturating_sub(1)).unwrap_or_default().trim().to_owned())
}

/// True for a line that calls a trap, or asserts.
fn traps(line: &str) -> bool {
    words::identifiers(&words::code(line)).any(|word| ["__trap", "trap", "assert"].contains(&word))
}

/// Returns where the calls return to, in a shared object of one object file, as addresses in the former. None if either
/// cannot be read.
pub(crate) fn calls(object: &[u8], shared: &[u8]) -> Option<Vec<u64>> {
    let (object, shared) = (object::File::parse(object).ok()?, object::File::parse(shared).ok()?);
    let is_function = |symbol: &object::Symbol<'_, '_>| symbol.kind() == SymbolKind::Text && symbol.size() > 0;
    let placed: BTreeMap<&str, u64> = shared
        .symbols()
        .filter(is_function)
        .filter_map(|symbol| Some((symbol.name().ok()?, symbol.address())))
        .collect();
    let mut calls = Vec::new();
    for section in object.sections() {
        let mut functions: Vec<_> = object.symbols().filter(is_function).collect();
        functions.retain(|function| function.section_index() == Some(section.index()));
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(target) = relocation.target() else { continue };
            if object.symbol_by_index(target).ok()?.name() != Ok(CALLED) {
                continue;
            }
            let inside = |function: &&object::Symbol<'_, '_>| {
                (function.address()..function.address() + function.size()).contains(&offset)
            };
            let Some(function) = functions.iter().find(inside) else { continue };
            // The relocation is of the call's last four bytes.
            let address = placed.get(function.name().ok()?).map(|placed| placed + offset - function.address() + 4);
            calls.extend(address);
        }
    }
    Some(calls)
}

/// Returns the place of each call that returns to an address: of what is inlined, where it is written. None for a line
/// of the machine.
///
/// # Errors
/// [`CompileError::Io`] where addr2line does not answer.
pub(crate) fn places(addresses: &[u64], file: &Path) -> Result<Vec<Option<CodePlace>>, CompileError> {
    let addr2line =
        Command::new("addr2line").arg("--exe").arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let output = addr2line.and_then(|mut child| {
        let asked: String = addresses.iter().map(|address| format!("{:#x}\n", address - 1)).collect();
        let mut stdin = child.stdin.take().expect("it is piped");
        // It answers each line before it reads the next: a full pipe would stop both.
        let writing = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
        let output = child.wait_with_output()?;
        writing.join().expect("writing does not panic")?;
        Ok(output)
    });
    let failed = |error| CompileError::Io { what: "addr2line".to_owned(), error };
    let text = String::from_utf8_lossy(&output.map_err(failed)?.stdout).into_owned();
    let places: Vec<_> = text.lines().map(place).collect();
    match places.len() == addresses.len() {
        true => Ok(places),
        false => Err(failed(io::Error::other("it does not name a line of each address"))),
    }
}

/// Parses a line of addr2line: `file:line`, with ` (discriminator N)` for blocks but the first. Copies that an
/// optimization made of a block differ in bits above the lowest eight.
fn place(line: &str) -> Option<CodePlace> {
    let (line, block) = line.split_once(" (discriminator ").unwrap_or((line, "0)"));
    let (file, number) = line.rsplit_once(':')?;
    let block = block.trim_end_matches(')').parse::<u32>().ok()? & 0xff;
    Some((source_file(file)?.to_owned(), number.parse().ok()?, LinePart::Block(block)))
}

/// Returns a source's name as it lies in its package; none of a path that is of no source.
pub(crate) fn source_file(path: &str) -> Option<&str> {
    Some(path.strip_prefix(SOURCES)?.strip_prefix('/')?.trim_start_matches("./"))
}

#[cfg(test)]
mod tests {
    use precast_core::source;

    use super::*;

    #[test]
    fn lines_and_parts_that_nothing_executes_are_named_but_for_traps() {
        let source = Source {
            path: "k/a.cu",
            text: "one();\ntwo(); // no trap\n__trap();\ntrapezoid();\nif (a && b) c();",
            headers: &[("b.h", "other();"), ("ab.h", "header();")],
            common: &source::AS_IT_IS,
        };
        let file = source.file();
        let block = |file: &str, line, part, executed| CodeBlock {
            written: Some((file.to_owned(), line, part)),
            calls: Vec::new(),
            executed,
        };
        let at = |file: &str, line, executed| block(file, line, LinePart::Block(0), executed);
        let part = |number, executed| block(&file, 5, LinePart::Block(number), executed);
        let branches = Branches::default();
        // A second build reaches what the first does not.
        branches.add(&source, [at(&file, 1, false), at(&file, 2, false), at(&file, 3, false), at(&file, 4, false)]);
        branches.add(&source, [at(&file, 1, true), at("k/ab.h", 1, false), at("elsewhere.h", 1, false)]);
        branches.add(&source, [part(0, true), part(1, false), part(2, false)]);
        branches.add(&source, [part(1, true)]);
        let expected = [
            format!("{file}:2: two(); // no trap"),
            format!("{file}:4: trapezoid();"),
            format!("{file}:5: if (a && b) c(); (a part of it)"),
            "k/ab.h:1: header();".into(),
        ];
        assert_eq!(branches.unexecuted(), expected);
    }

    #[test]
    fn a_line_of_addr2line_is_a_file_a_line_and_a_block() {
        let block = |line, number| Some(("k/a.cu".to_owned(), line, LinePart::Block(number)));
        assert_eq!(place("/simt/./k/a.cu:12 (discriminator 3)"), block(12, 3));
        assert_eq!(place("/simt/k/a.cu:7 (discriminator 513)"), block(7, 1));
        assert_eq!(place("/simt/k/a.cu:7"), block(7, 0));
        assert_eq!((place("??:0"), place("/usr/include/math.h:3")), (None, None));
    }
}
