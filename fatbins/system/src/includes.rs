//! Headers that a CUDA file may read, found in folders that a build names: each `#include` of the file and of what it
//! includes, whatever stands behind an `#if`. A compiler is given these and no others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use precast_core::source::words;

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
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
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
    let (mut found, mut texts) = (Vec::<Included>::new(), vec![(source.to_owned(), read(source)?)]);
    while let Some((file, text)) = texts.pop() {
        let code = words::code(&text);
        let directives = code.lines().enumerate().filter_map(|(at, line)| Some((at, literal(directive(line)?)?)));
        for (line, (name, is_quoted)) in directives {
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
                    let text = read(&path)?;
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
    let code = words::code(text);
    let is_computed = |line: &str| directive(line).is_some_and(|what| literal(what).is_none());
    let lines = text.split_inclusive('\n').zip(code.split_inclusive('\n'));
    let lines = lines.map(|(line, code)| if is_computed(code) { COMPUTED } else { line });
    lines.collect()
}

/// Stands for a computed `#include`.
const COMPUTED: &str =
    "#error a computed #include: write the name of the header, so that its text is of the kernel's digest\n";

/// Returns what a line includes.
fn directive(line: &str) -> Option<&str> {
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

fn read(path: &Path) -> Result<String, IncludeError> {
    fs::read_to_string(path).map_err(|error| IncludeError::Read { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
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
    fn a_computed_include_is_an_error_of_the_compiler() {
        let text = "#define H \"b.h\"\n#include H\n#include/**/\"c.h\"\n%: include <d.h>\n/*\n#include H */\nint i;\n#include_next <e.h>";
        let expected = format!(
            "#define H \"b.h\"\n{COMPUTED}#include/**/\"c.h\"\n%: include <d.h>\n/*\n#include H */\nint i;\n{COMPUTED}"
        );
        assert_eq!(spelled_out(text), expected);
        let files = [("k/a.cu", "# /* of */ include/**/\"b.h\"\n%: include <d.h>"), ("k/b.h", "1"), ("third/d.h", "2")];
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
