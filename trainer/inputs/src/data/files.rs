//! Which files are data: those that are named, and the files of named directories.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flate2::read::MultiGzDecoder;
use precast_system::input;

use super::DataError;
use super::foreign::foreign;
use crate::base::impostors::without_mark;

/// Longest document: the tokenizers library takes about sixty times its size for a while.
pub(super) const MOST_DOCUMENT_BYTES: u64 = 256 << 20;

/// The form in which a file holds data, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `.bin`: u32 token ids.
    Ids,
    /// `.txt`: a document.
    Document,
    /// `.jsonl`: a row a line.
    Lines,
    /// `.csv`: a line of column names, then rows of texts.
    Csv,
    /// `.parquet`: a table of rows.
    Table,
}

impl Form {
    fn of(path: &Path) -> Option<Self> {
        let is_gzip = is_gzip(path);
        let name = if is_gzip { Path::new(path.file_stem()?) } else { path };
        match name.extension()?.to_str()? {
            "jsonl" | "ndjson" | "json" => Some(Self::Lines),
            "csv" => Some(Self::Csv),
            _ if is_gzip => None,
            "bin" => Some(Self::Ids),
            "txt" | "md" => Some(Self::Document),
            "parquet" => Some(Self::Table),
            _ => None,
        }
    }
}

fn is_gzip(path: &Path) -> bool {
    path.extension() == Some("gz".as_ref())
}

/// Forms of files, for messages.
const FORMS: &str = ".bin (u32 token ids), .jsonl, .csv, .parquet or .txt";

/// A file of data, as it was when the run began.
#[derive(Clone, Debug)]
pub(super) struct DataFile {
    pub path: PathBuf,
    pub form: Form,
    /// The directory that was named in place of it.
    pub directory: Option<PathBuf>,
    pub bytes: u64,
    /// What it is, whatever its name: device and inode.
    pub inode: (u64, u64),
    changed: Option<SystemTime>,
}

impl DataFile {
    fn new(path: PathBuf, directory: Option<&Path>) -> Result<Self, DataError> {
        let (_, metadata) = stat(&path)?;
        let unknown = || foreign(&path).unwrap_or_else(|| format!("unknown kind of data: expected {FORMS}"));
        Ok(Self {
            form: Form::of(&path).ok_or_else(|| DataError::of(&path, unknown()))?,
            path,
            directory: directory.map(Path::to_owned),
            bytes: metadata.len(),
            inode: (metadata.dev(), metadata.ino()),
            changed: metadata.modified().ok(),
        })
    }

    /// Opens it, unless it is not as it was.
    pub fn open(&self) -> Result<File, DataError> {
        let (file, metadata) = stat(&self.path)?;
        match (metadata.len(), metadata.modified().ok()) == (self.bytes, self.changed) {
            true => Ok(file),
            false => {
                let is = "was changed while the run read it: start the run again with --overwrite";
                Err(DataError::file(&self.path, is))
            }
        }
    }

    /// Opens it to be read from its start to its end, decompressed.
    pub fn stream(&self) -> Result<Box<dyn Read + Send>, DataError> {
        let file = self.open()?;
        Ok(if is_gzip(&self.path) { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) })
    }

    /// Reads bytes from its start, so many at most.
    fn read(&self, most: u64) -> Result<Vec<u8>, DataError> {
        let most = most.min(self.bytes);
        let mut bytes = Vec::with_capacity(most as usize);
        self.open()?.take(most).read_to_end(&mut bytes).map_err(DataError::io(&self.path))?;
        Ok(bytes)
    }

    /// Reads token ids from its start, so many at most.
    pub fn ids(&self, most: u64) -> Result<Vec<u32>, DataError> {
        let bytes = self.read(most.saturating_mul(4))?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Returns the text of a file that is one document, without its byte order mark.
    pub fn text(&self) -> Result<String, DataError> {
        let (path, bytes) = (&self.path, self.bytes);
        if bytes > MOST_DOCUMENT_BYTES {
            let remedy = "split it into several, one per line of a .jsonl file";
            let reason =
                format!("a document of {bytes} bytes: at most {MOST_DOCUMENT_BYTES} are tokenized at a time; {remedy}");
            return Err(DataError::of(path, reason));
        }
        let text = String::from_utf8(without_mark(&self.read(bytes)?).to_vec());
        text.map_err(|error| DataError::of(path, format_args!("not UTF-8 text: {error}")))
    }
}

fn stat(path: &Path) -> Result<(File, Metadata), DataError> {
    let stat = |file: File| file.metadata().map(|metadata| (file, metadata));
    input::open(path).and_then(stat).map_err(DataError::io(path))
}

/// Stems of files that are about the data of their directory, in any case.
const ABOUT: [&str; 3] = ["readme", "license", "datasheet"];
/// Beginnings of names of data that are usually held out.
const HELD_OUT: [&str; 5] = ["test", "validation", "valid", "dev", "eval"];

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase()
}

/// True of `test.jsonl` and `test-00000-of-00001.parquet`, not of `testimony.txt`.
pub(super) fn is_named_held_out(path: &Path) -> bool {
    let stem = stem(path);
    let mut rests = HELD_OUT.iter().filter_map(|name| stem.strip_prefix(name));
    rests.any(|rest| !rest.starts_with(char::is_alphabetic))
}

/// Files that paths lead to.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub files: Vec<DataFile>,
    /// Those of directories that are about its data.
    pub left_out: Vec<PathBuf>,
}

/// The files that paths lead to: each itself, or those of a directory in name order, without hidden ones and those that
/// are about the others.
pub(super) fn find(paths: &[PathBuf]) -> Result<Found, DataError> {
    let Found { mut files, mut left_out } = Found::default();
    for path in paths {
        if !path.is_dir() {
            files.push(DataFile::new(path.clone(), None)?);
            continue;
        }
        if let Some(reason) = foreign(path) {
            return Err(DataError::of(path, reason));
        }
        let entries =
            std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(DataError::io(path))?;
        let mut inside: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        inside.retain(|file| !file.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
        inside.sort();
        left_out.extend(inside.extract_if(.., |file| ABOUT.contains(&&*stem(file)) && !file.is_dir()));
        if inside.is_empty() {
            return Err(DataError::of(path, format_args!("no data in this directory: expected files of {FORMS}")));
        }
        for file in inside {
            if file.is_dir() {
                return Err(DataError::of(
                    &file,
                    "a directory among data files: only the files of a directory are read; name it with a --data of \
                    its own",
                ));
            }
            files.push(DataFile::new(file, Some(path))?);
        }
    }
    Ok(Found { files, left_out })
}

/// Bytes of the files that a path leads to; one that cannot be read has none.
pub fn bytes(path: &Path) -> u64 {
    find(&[path.to_owned()]).map_or(0, |found| found.files.iter().map(|file| file.bytes).sum())
}
