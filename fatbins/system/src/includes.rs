//! Headers that a CUDA file may read, found in folders that a build names: each `#include` of the file and of what it
//! includes, whatever stands behind an `#if`. A compiler is given these and no others.

use std::path::{Path, PathBuf};

use precast_core::source::words::{self, Piece};

use crate::input::{self, ReadError};

/// A header, by the name that an `#include` has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Included {
    /// Text between the quotes or brackets.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
}

/// A header that a build must not read.
#[derive(Debug, thiserror::Error)]
pub enum IncludeError {
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It lies where nobody said that headers are.
    #[error(
        "{place}: `{name}` is {}, which is neither beside the source nor below a named folder: name its folder by \
        .include_dir(\"FOLDER\") in build.rs and --include FOLDER of precast-aot abi",
        path.display()
    )]
    Outside {
        /// File and line of the `#include`.
        place: String,
        /// Name that it has there.
        name: String,
        /// The header.
        path: PathBuf,
    },
    /// One name is two files.
    #[error(
        "{place}: `{name}` is {} here and {} elsewhere: a compiler is given one header of a name",
        here.display(),
        elsewhere.display()
    )]
    Twice {
        /// File and line of the `#include`.
        place: String,
        /// Name that it has there.
        name: String,
        /// The file that it is there.
        here: PathBuf,
        /// The file that it is elsewhere.
        elsewhere: PathBuf,
    },
}

/// Finds the headers of a file, in the order of their names: beside the file that includes them, then in these folders.
/// A name that is no file is left out: it may stand behind an `#if`.
///
/// # Errors
/// [`IncludeError`] for a header that lies elsewhere, or a file that cannot be read.
pub fn included(source: &Path, folders: &[PathBuf]) -> Result<Vec<Included>, IncludeError> {
    let beside = |file: &Path| file.parent().map(Path::to_owned).unwrap_or_default();
    let allowed: Vec<PathBuf> = [beside(source)].iter().chain(folders).filter_map(|folder| whole(folder)).collect();
    let (mut found, mut texts) = (Vec::<Included>::new(), vec![(source.to_owned(), input::text(source)?)]);
    while let Some((file, text)) = texts.pop() {
        for Directive { first: line, what, .. } in directives(&text) {
            let Some((name, is_quoted)) = literal(&what) else { continue };
            let here = is_quoted.then(|| beside(&file));
            let path = here.iter().chain(folders).map(|folder| folder.join(name)).find(|path| path.is_file());
            let Some(path) = path else { continue };
            let (place, name) = (format!("{}:{}", file.display(), line + 1), name.to_owned());
            if !whole(&path).is_some_and(|path| allowed.iter().any(|folder| path.starts_with(folder))) {
                return Err(IncludeError::Outside { place, name, path });
            }
            match found.iter().find(|other| other.name == name) {
                Some(other) if whole(&other.path) == whole(&path) => {}
                Some(other) => {
                    return Err(IncludeError::Twice { place, name, here: path, elsewhere: other.path.clone() });
                }
                None => {
                    let text = input::text(&path)?;
                    texts.push((path.clone(), text.clone()));
                    found.push(Included { name, path, text });
                }
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Returns a text for a compiler, where an `#include` without a name in quotes or brackets is an `#error`: nobody knows
/// what it reads before it is compiled.
pub fn spelled_out(text: &str) -> String {
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    for Directive { first, last, what } in directives(text) {
        if literal(&what).is_none() {
            lines[first] = COMPUTED;
            lines[first + 1..=last].fill("\n");
        }
    }
    lines.concat()
}

/// Stands for an `#include` of an unknown header.
const COMPUTED: &str = "#error write the header's name in this #include: its text is part of the kernel's digest\n";

/// An `#include`.
struct Directive {
    /// Lines that it begins and ends in, from 0.
    first: usize,
    last: usize,
    /// Text behind `include`: a name in quotes or brackets, or a macro.
    what: String,
}

/// Finds the `#include`s of a text, as a preprocessor reads lines: joined behind a backslash, and without comments.
fn directives(text: &str) -> Vec<Directive> {
    let (joined, ends) = joined(text);
    let line_of = |place: usize| ends.partition_point(|end| *end <= place);
    let (mut found, mut line, mut start, mut at) = (Vec::new(), String::new(), 0, 0);
    while let Some((piece, mut own)) = words::piece(&joined[at..]) {
        // No comment begins in the brackets of a name.
        if own == "<" && included_by(&line) == Some("") {
            own = joined[at..].split(['>', '\n']).next().unwrap_or(own);
        }
        match piece {
            Piece::Space if own.contains('\n') => {
                let what = included_by(&line).map(str::to_owned);
                found.extend(what.map(|what| Directive { first: line_of(start), last: line_of(at - 1), what }));
                line.clear();
                start = at + own.rfind('\n').map_or(0, |end| end + 1);
            }
            Piece::Comment => line.push(' '),
            _ => line.push_str(own),
        }
        at += own.len();
    }
    found
}

/// Returns a text without a backslash at the end of a line and that end, and the place at which each line ends in it.
fn joined(text: &str) -> (String, Vec<usize>) {
    let (mut joined, mut ends) = (String::new(), Vec::new());
    for line in text.split_inclusive('\n') {
        joined += line.trim_end_matches(['\r', '\n']).strip_suffix('\\').unwrap_or(line);
        ends.push(joined.len());
    }
    (joined + "\n", ends)
}

/// Returns what a line includes.
fn included_by(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = line.strip_prefix('#').or_else(|| line.strip_prefix("%:"))?;
    Some(rest.trim_start().strip_prefix("include")?.trim())
}

/// Returns the name in quotes, true, or in brackets.
fn literal(what: &str) -> Option<(&str, bool)> {
    match what.strip_prefix('"') {
        Some(name) => Some((name.split_once('"')?.0, true)),
        None => Some((what.strip_prefix('<')?.split_once('>')?.0, false)),
    }
}

/// A path without links and dots.
fn whole(path: &Path) -> Option<PathBuf> {
    let here = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    here.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Writes files, and finds the headers of `k/a.cu` in `third`.
    fn of(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = included(&dir.path().join("k/a.cu"), &[dir.path().join("third")]);
        let found = found.map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))?;
        Ok(found.into_iter().map(|header| format!("{} {}", header.name, header.text)).collect())
    }

    #[test]
    fn all_that_may_be_read_is_found_and_no_more() {
        let files = [
            (
                "k/a.cu",
                "#include \"b.h\"\n  # include <lib/c.h>\n#if 0\n#include <stdint.h>\n#endif\n// #include \"x.h\"\n",
            ),
            ("k/b.h", "1"),
            ("k/x.h", "2"),
            ("third/lib/c.h", "#include \"d.h\"\n#include \"../lib/c.h\""),
            ("third/lib/d.h", "3"),
        ];
        let c = "#include \"d.h\"\n#include \"../lib/c.h\"";
        let expected = [format!("../lib/c.h {c}"), "b.h 1".to_owned(), "d.h 3".to_owned(), format!("lib/c.h {c}")];
        assert_eq!(of(&files).unwrap(), expected);
    }

    #[test]
    fn an_include_without_a_name_is_an_error_of_the_compiler() {
        for (text, expected) in [
            ("#define H \"b.h\"\n#include H\nint i;", "#define H \"b.h\"\n{}int i;"),
            ("#include H // of H", "{}"),
            ("# /* two\n */ inc\\\nlude \\\r\n H\nint i;\n", "{}\n\n\nint i;\n"),
            ("#error can't\n// what's in a /*\n#include H\n", "#error can't\n// what's in a /*\n{}"),
            ("auto s = R\"x(\n#include A\n/*)x\";\n%: include H\n", "auto s = R\"x(\n#include A\n/*)x\";\n{}"),
            ("int n = 1'000; /* of\n#include A */\n#include_next <a.h>\n", "int n = 1'000; /* of\n#include A */\n{}"),
        ] {
            assert_eq!(spelled_out(text), expected.replace("{}", COMPUTED), "{text}");
        }
        for kept in [
            "#include <sys//x.h>\n",
            "#include \\\n\"b.h\"\n",
            "int i;\n/* a\nb */",
            "#if 0\n#endif /* X\n Y */",
            "f('\"');",
        ] {
            assert_eq!(spelled_out(kept), kept);
        }
        let files =
            [("k/a.cu", "# /* of */ inc\\\nlude/**/\"b.h\"\n%: include <d.h>"), ("k/b.h", "1"), ("third/d.h", "2")];
        assert_eq!(of(&files).unwrap(), ["b.h 1", "d.h 2"]);
    }

    #[test]
    fn a_header_of_no_named_folder_is_refused_with_its_place() {
        let said = of(&[("k/a.cu", "\n#include \"../other/b.h\""), ("other/b.h", "")]).unwrap_err();
        assert!(said.starts_with("k/a.cu:2: `../other/b.h` is k/../other/b.h, which is neither"), "{said}");
        assert!(said.contains(".include_dir(\"FOLDER\")"), "{said}");
        let two = [
            ("k/a.cu", "#include \"b.h\"\n#include <c.h>"),
            ("k/b.h", ""),
            ("third/b.h", ""),
            ("third/c.h", "#include <b.h>"),
        ];
        let said = of(&two).unwrap_err();
        assert!(said.starts_with("third/c.h:1: `b.h` is third/b.h here and k/b.h elsewhere"), "{said}");
    }
}
