//! The file of completions: a row each, appended in the order of the prompts, and a header beside it by which it is
//! continued: what they follow from, and the digest of each row.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_system::files::{self, AsideFile, Existing};
use precast_system::input;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::io::IoError;
use crate::run::error::RunError;
use crate::run::failure::Failure;

/// The most that is read of a file of completions.
const MOST_BYTES: u64 = 64 << 30;
/// A label that does not count, in rows of data.
const IGNORED: i64 = -100;

/// A completion with its prompt: a row of data.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Completion {
    /// Those of the prompt, then those of the completion.
    pub input_ids: Vec<u32>,
    /// The completion's ids behind one -100 for each of the prompt's.
    pub labels: Vec<i64>,
    /// The completion, without special tokens.
    pub text: String,
}

impl Completion {
    /// Makes a row of a prompt's ids and those written behind them.
    pub fn new(prompt: &[u32], ids: &[u32], text: String) -> Self {
        let labels = std::iter::repeat_n(IGNORED, prompt.len()).chain(ids.iter().map(|id| i64::from(*id)));
        Self { input_ids: [prompt, ids].concat(), labels: labels.collect(), text }
    }
}

/// The file, as it is written.
pub(super) struct CompletionsFile {
    path: PathBuf,
    file: File,
    /// Its header, to which the digest of each row is appended.
    header: File,
}

impl CompletionsFile {
    /// Creates an empty file, with its header.
    ///
    /// # Errors
    /// [`Failure`] where it cannot be created, or another process writes it.
    pub fn create(path: &Path, header: &Map<String, Value>) -> Result<Self, Failure> {
        check_place(path, false, &[])?;
        let beside = header_path(path);
        let text = serde_json::to_string(header).expect("plain data serializes") + "\n";
        let write = || {
            let mut aside = AsideFile::new(&beside)?;
            aside.write_all(text.as_bytes())?;
            aside.publish(Existing::Keep)
        };
        write().map_err(IoError::of("write", &beside))?;
        let file = OpenOptions::new().append(true).create_new(true).open(path).map_err(|error| {
            // Nothing was begun.
            let _ = files::remove_file(&beside);
            IoError::of("create", path)(error)
        })?;
        let header = append_to(&beside)?;
        Self { path: path.to_owned(), file, header }.locked()
    }

    /// Takes the file for this process.
    fn locked(self) -> Result<Self, Failure> {
        match self.file.try_lock() {
            Ok(()) => Ok(self),
            Err(TryLockError::WouldBlock) => {
                let path = self.path.display();
                Err(Failure::usage(format!(
                    "--out: another process writes {path}: wait for it, or choose another FILE"
                )))
            }
            Err(TryLockError::Error(error)) => Err(IoError::of("lock", &self.path)(error).into()),
        }
    }

    /// Opens the file of a generation that is continued, and returns the number of completions that are there. What a
    /// kill has left of one, without its end or its digest, is truncated.
    ///
    /// # Errors
    /// [`Failure`] where the header is of another generation, or a row is not as it was written.
    pub fn resume(path: &Path, header: &Map<String, Value>) -> Result<(Self, usize), Failure> {
        let (header_bytes, digests) = check_header(path, header)?;
        // A kill may have come between header and file.
        let own =
            Self { path: path.to_owned(), file: append_to(path)?, header: append_to(&header_path(path))? }.locked()?;
        let bytes = input::read(path, MOST_BYTES).map_err(IoError::of("read", path))?;
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let (mut rows, mut end) = (0, 0);
        for (line, digest) in lines.zip(&digests) {
            rows += 1;
            end += line.len() as u64;
            if digest_line(line) != *digest {
                let path = path.display();
                return Err(Failure::Run(RunError::Unusable(format!(
                    "--resume: {path}:{rows} is not the row that was written there: choose another FILE"
                ))));
            }
        }
        files::truncate(&own.file, end).map_err(IoError::of("write", path))?;
        let digests_bytes: usize = digests[..rows].iter().map(String::len).sum();
        files::truncate(&own.header, (header_bytes + digests_bytes) as u64).map_err(IoError::of("write", path))?;
        Ok((own, rows))
    }

    /// Appends a row.
    ///
    /// # Errors
    /// [`IoError`].
    pub fn push(&mut self, row: &Completion) -> Result<(), IoError> {
        let line = serde_json::to_string(row).expect("a row serializes") + "\n";
        let mut write = || {
            files::append(&mut self.file, line.as_bytes())?;
            files::append(&mut self.header, digest_line(line.as_bytes()).as_bytes())
        };
        write().map_err(IoError::of("write", &self.path))
    }
}

/// The line of a header that stands for a row.
fn digest_line(row: &[u8]) -> String {
    format!("{}\n", Digest::of(row))
}

fn append_to(path: &Path) -> Result<File, IoError> {
    OpenOptions::new().append(true).create(true).open(path).map_err(IoError::of("write", path))
}

/// The path of the header: rows of data are all that a file of data has, and a hidden file of a directory is no data.
fn header_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".header");
    path.with_file_name(name)
}

/// Refuses a file that cannot be the one of completions, before anything is loaded.
///
/// # Errors
/// [`Failure`] where it, or its header, is there and is not to be continued, or it would be among the prompts.
pub(super) fn check_place(path: &Path, resumes: bool, data: &[PathBuf]) -> Result<(), Failure> {
    let named = path.display();
    if path.as_os_str().as_encoded_bytes().ends_with(b"/") || path.is_dir() {
        return Err(Failure::usage(format!("--out {named} is a directory: name a file in it, as completions.jsonl")));
    }
    let canonical = |path: &Path| path.canonicalize().ok();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Some(inside) = data.iter().find(|data| data.is_dir() && canonical(data) == canonical(parent)) {
        let inside = inside.display();
        return Err(Failure::usage(format!(
            "--out {named} is in --data {inside}, where it would be read as prompts: write it elsewhere"
        )));
    }
    let there = [path.to_owned(), header_path(path)].into_iter().find(|path| path.symlink_metadata().is_ok());
    match there.filter(|_| !resumes) {
        Some(there) => {
            let there = there.display();
            Err(Failure::usage(format!("--out: {there} is there: --resume continues it, or choose another FILE")))
        }
        None => Ok(()),
    }
}

/// Refuses to continue a generation with other settings, all of which are named. Returns the bytes of the settings, and
/// the lines of digests behind them.
fn check_header(path: &Path, header: &Map<String, Value>) -> Result<(usize, Vec<String>), Failure> {
    let beside = header_path(path);
    let missing = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => {
            let (path, beside) = (path.display(), beside.display());
            Failure::usage(format!("--resume: {path} has no header {beside}: leave --resume out to begin"))
        }
        _ => IoError::of("read", &beside)(error).into(),
    };
    let text = input::read_text(&beside, MOST_BYTES).map_err(missing)?;
    let mut lines = text.split_inclusive('\n');
    let settings = lines.next().unwrap_or_default();
    let was: Map<String, Value> = serde_json::from_str(settings)
        .map_err(|error| Failure::usage(format!("--resume: {}: {error}", beside.display())))?;
    let names = was.keys().chain(header.keys().filter(|name| !was.contains_key(*name)));
    let value = |of: &Map<String, Value>, name: &String| of.get(name).map_or("none".to_owned(), ToString::to_string);
    let differences: Vec<String> = names
        .filter(|name| was.get(*name) != header.get(*name))
        .map(|name| format!("  {name} was {}, is {}", value(&was, name), value(header, name)))
        .collect();
    if differences.is_empty() {
        return Ok((settings.len(), lines.filter(|line| line.ends_with('\n')).map(str::to_owned).collect()));
    }
    Err(Failure::usage(format!(
        "--resume: {} belongs to another generation:\n{}\nUse the values that it was started with, or choose another \
        FILE",
        path.display(),
        differences.join("\n")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(seed: u64) -> Map<String, Value> {
        Map::from_iter([("seed".to_owned(), seed.into())])
    }

    fn rows() -> Vec<Completion> {
        (0..3).map(|number| Completion::new(&[number, 7], &[5, 6], "five six".to_owned())).collect()
    }

    fn message(result: Result<(CompletionsFile, usize), Failure>) -> String {
        result.err().expect("an error").to_string()
    }

    #[test]
    fn a_torn_line_is_written_again_to_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.jsonl");
        let mut file = CompletionsFile::create(&path, &header(1)).unwrap();
        rows().iter().for_each(|row| file.push(row).unwrap());
        let whole = std::fs::read(&path).unwrap();
        let held = message(CompletionsFile::resume(&path, &header(1)));
        assert!(held.contains("another process writes"), "{held}");
        drop(file);
        assert_eq!(whole.iter().filter(|byte| **byte == b'\n').count(), 3);
        let beside = header_path(&path);
        let said = std::fs::read(&beside).unwrap();
        for kept in 0..whole.len() {
            std::fs::write(&path, &whole[..kept]).unwrap();
            // A digest is written behind its row.
            std::fs::write(&beside, &said[..said.len() - 7 * kept % (2 * 65)]).unwrap();
            let (mut file, done) = CompletionsFile::resume(&path, &header(1)).unwrap();
            rows()[done..].iter().for_each(|row| file.push(row).unwrap());
            assert_eq!((std::fs::read(&path).unwrap(), std::fs::read(&beside).unwrap()), (whole.clone(), said.clone()));
        }
    }

    #[test]
    fn what_is_of_another_generation_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.jsonl");
        let nothing = message(CompletionsFile::resume(&path, &header(1)));
        assert!(nothing.contains("has no header"), "{nothing}");
        let mut file = CompletionsFile::create(&path, &header(1)).unwrap();
        file.push(&rows()[0]).unwrap();
        file.push(&rows()[1]).unwrap();
        drop(file);
        let again = CompletionsFile::create(&path, &header(1)).err().unwrap().to_string();
        assert!(again.contains("is there: --resume continues it"), "{again}");
        let seed = message(CompletionsFile::resume(&path, &header(2)));
        assert!(seed.contains("\n  seed was 1, is 2\n"), "{seed}");
        let text = std::fs::read_to_string(&path).unwrap();
        let (first, second) = text.split_once('\n').unwrap();
        for (edited, row) in [(format!("{second}{first}\n"), 1), (text.replace("[1,7,5,6]", "[1,7,6,5]"), 2)] {
            std::fs::write(&path, edited).unwrap();
            let Err(failure) = CompletionsFile::resume(&path, &header(1)) else { panic!("row {row} is another") };
            let expected = format!("c.jsonl:{row} is not the row that was written there");
            assert!(failure.to_string().contains(&expected) && failure.exit_code() == 5, "{failure}");
        }
    }

    #[test]
    fn labels_count_the_completion_alone() {
        let row = Completion::new(&[1, 2], &[3], "three".to_owned());
        assert_eq!((row.input_ids, row.labels), (vec![1, 2, 3], vec![-100, -100, 3]));
    }
}
