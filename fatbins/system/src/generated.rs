//! Rust that is generated of C headers. Its head says by which command, of which headers and with which body: a test
//! tells a stale or edited file without a C compiler.

use std::path::{Path, PathBuf};
use std::{fs, io};

use precast_core::{Digest, VERSION};

use crate::includes::Included;
use crate::input::{self, ReadError};

/// Begins the line whose backquoted part is the command that regenerates the file.
const COMMAND: &str = "//! Not edited by hand: ";
/// Begins the line with the digest of the headers.
const HEADERS: &str = "// Headers: ";
/// Begins the line with the digest of all that is behind it.
const BODY: &str = "// Body: ";

/// A generated file that is not what the generator would write, or headers that it cannot be made of.
#[derive(thiserror::Error)]
pub enum Stale {
    /// A file or folder cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is nothing to generate from.
    #[error("no header (*.h) is in {} or in a folder of it", .0.display())]
    NoHeader(PathBuf),
    /// An include would find one of them only.
    #[error("two headers are called {0}: sources include a header by its name alone")]
    Twice(String),
    /// It does not say what it was made of.
    #[error("{} has no head that says what it was made of: `precast-aot abi FOLDER --out FILE` writes \
        one", .0.display())]
    NoHead(PathBuf),
    /// A header was edited since, added or removed.
    #[error("{} is not of the headers as they are: `{command}` makes it again", file.display())]
    Headers {
        /// The generated file.
        file: PathBuf,
        /// Regenerates it.
        command: String,
    },
    /// Somebody edited it.
    #[error("{} was edited by hand: `{command}` makes it again", file.display())]
    Edited {
        /// The generated file.
        file: PathBuf,
        /// Regenerates it.
        command: String,
    },
}

precast_core::debug_is_display!(Stale);

/// Finds the folders with headers: a folder and those directly in it.
///
/// # Errors
/// [`Stale::Read`], and [`Stale::NoHeader`] where there is none.
pub fn folders(folder: &Path) -> Result<Vec<PathBuf>, Stale> {
    let mut found = vec![folder.to_owned()];
    found.extend(entries(folder)?.into_iter().filter(|path| path.is_dir()));
    let mut kept = Vec::new();
    for folder in found {
        if entries(&folder)?.iter().any(|path| is_header(path)) {
            kept.push(folder);
        }
    }
    if kept.is_empty() { Err(Stale::NoHeader(folder.to_owned())) } else { Ok(kept) }
}

/// Reads the headers of folders, in the order of their names.
///
/// # Errors
/// [`Stale::Read`], and [`Stale::Twice`] where two have one name.
pub fn headers(folders: &[PathBuf]) -> Result<Vec<Included>, Stale> {
    let mut found = Vec::new();
    for folder in folders {
        for path in entries(folder)?.into_iter().filter(|path| is_header(path)) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push(Included { name, text: input::text(&path)?, path });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    match found.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some(pair) => Err(Stale::Twice(pair[0].name.clone())),
        None => Ok(found),
    }
}

/// Puts the head of a generated file before its body. It begins with a sentence that says `what` it is, and has the
/// digest of what it was made of; `command` regenerates it.
pub fn head(what: &str, command: &str, of: &str, body: &str) -> String {
    format!(
        "//! {what}\n//!\n{COMMAND}`{command}` regenerates it.\n{HEADERS}{of}\n{BODY}{}\n{body}",
        Digest::of(body.as_bytes())
    )
}

/// Compares a generated file with its own head, and that with the headers of these folders.
///
/// # Errors
/// [`Stale`] with the command that regenerates the file.
pub fn check(folders: &[PathBuf], file: &Path) -> Result<(), Stale> {
    check_head(Some(digest(&headers(folders)?)), file)
}

/// Compares a generated file with its own head, and that with the digest of what it is to be made of, if there is one.
///
/// # Errors
/// [`Stale`] with the command that regenerates the file.
pub fn check_head(wanted: Option<Digest>, file: &Path) -> Result<(), Stale> {
    let text = input::text(file)?;
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let body = text.split_once(BODY).and_then(|(_, rest)| rest.split_once('\n'));
    let (Some(said), Some(of), Some((own, body))) = (line(COMMAND), line(HEADERS), body) else {
        return Err(Stale::NoHead(file.to_owned()));
    };
    let (file, command) = (file.to_owned(), said.split('`').nth(1).unwrap_or_default().to_owned());
    if wanted.is_some_and(|wanted| of != wanted.to_string()) {
        return Err(Stale::Headers { file, command });
    }
    if own != Digest::of(body.as_bytes()).to_string() {
        return Err(Stale::Edited { file, command });
    }
    Ok(())
}

/// Checks every generated file `abi.rs` below a folder of a package as its own head says: the command there names its
/// headers. Files without a head are not looked at.
///
/// # Errors
/// Those of [`check`].
pub fn check_all(package: &Path, below: &Path) -> Result<(), Stale> {
    for path in entries(below)? {
        if path.is_dir() {
            check_all(package, &path)?;
        } else if path.file_name().is_some_and(|name| name == "abi.rs") {
            let text = input::text(&path)?;
            let command = text.lines().find_map(|line| line.strip_prefix(COMMAND)?.split('`').nth(1));
            let folder = command.and_then(|command| command.strip_prefix("precast-aot abi ")?.split(" --out ").next());
            if let Some(folder) = folder.map(|folder| package.join(folder)).filter(|folder| folder.is_dir()) {
                check(&folders(&folder)?, &path)?;
            }
        }
    }
    Ok(())
}

/// Digests headers.
pub fn digest(headers: &[Included]) -> Digest {
    let parts = headers.iter().flat_map(|header| [header.name.as_str(), &header.text]);
    // Another version may declare more, or other Rust.
    Digest::of_parts("precast.headers", [VERSION].into_iter().chain(parts).map(str::as_bytes))
}

fn is_header(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|end| end == "h")
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Stale> {
    let paths: io::Result<Vec<PathBuf>> =
        fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths = paths.map_err(ReadError::of(folder))?;
    paths.sort_unstable();
    Ok(paths)
}
