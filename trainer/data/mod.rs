//! Training and evaluation data: token chunks of a fixed length.

mod batch;
mod file;
mod rows;
mod text;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use precast_fatbins::Digest;
use precast_kernels::abi::MASKED_TOKEN;

use crate::tokenizer::Tokenizer;

use crate::disguise::Disguise;
pub use batch::{Batches, MicroBatch};
pub(crate) use file::map;
pub use rows::RowFault;
use rows::{Columns, Rows, TEXT};
use text::{Documents, utf8};

/// Data that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    /// The file is not what its name says.
    #[error("{} {what}", path.display())]
    Disguised {
        path: PathBuf,
        /// What it is.
        what: Disguise,
    },
    /// The file's name does not say what it holds.
    #[error("{}: unknown kind of data: expected .bin (u32 token ids), .jsonl or .txt", path.display())]
    Kind { path: PathBuf },
    /// A `.bin` file is not whole ids.
    #[error("{}: {bytes} bytes are not a whole number of u32 token ids: it is cut short, or of another type; write ids as 4 bytes each", path.display())]
    Ragged { path: PathBuf, bytes: u64 },
    /// Nothing to learn from.
    #[error("{}: {tokens} tokens do not fill one chunk of seq_len + 1 = {chunk}: give more data or a smaller --seq-len", path.display())]
    TooShort {
        path: PathBuf,
        /// Tokens in it.
        tokens: usize,
        /// Tokens of a chunk: `seq_len + 1`.
        chunk: usize,
    },
    /// A token the student does not know.
    #[error("{}: token {index} has id {id}, the student's vocabulary ends at {vocab}: tokenize for this model", path.display())]
    Vocabulary {
        path: PathBuf,
        index: usize,
        id: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// A line of a JSONL file is not `{"text": ...}`.
    #[error("{}:{line}: {reason}: expected one {{\"text\": \"...\"}} object a line", path.display())]
    Jsonl {
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        reason: String,
    },
    /// The first row of a JSONL file, by which the others are read, is no JSON object.
    #[error(
        "{}:{line}: {reason}: expected one {{\"text\": \"...\"}} or {{\"input_ids\": [...], \"labels\": [...]}} object a line",
        path.display()
    )]
    FirstRow {
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        reason: String,
    },
    /// A row of token ids cannot be used.
    #[error("{}:{line}: {fault}", path.display())]
    Row {
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        fault: RowFault,
    },
    /// A text file is not UTF-8.
    #[error("{}: not UTF-8 text: {error}", path.display())]
    Utf8 { path: PathBuf, error: std::str::Utf8Error },
    /// Text, and no tokenizer to read it with.
    #[error("{} is text and the model has no tokenizer.json: put one beside its config.json, or give .bin token ids", path.display())]
    NoTokenizer { path: PathBuf },
    /// The tokenizer fails.
    #[error("{}: the tokenizer fails: {reason}", path.display())]
    Tokenizer { path: PathBuf, reason: String },
    /// A document that tokenizing would take too much memory for.
    #[error(
        "{}: a document of {bytes} bytes: at most {most} are tokenized at a time; \
         split it into several, one per line of a .jsonl file",
        path.display()
    )]
    LongDocument { path: PathBuf, bytes: usize, most: usize },
    /// There are tokens and none of them is to be predicted.
    #[error("{}: no token to predict: a sequence needs at least two, and one that is not masked", path.display())]
    NothingToPredict { path: PathBuf },
    /// Every token of a step is masked.
    #[error("step {step} has no token to predict: every target of its batches is masked")]
    NothingCounted {
        /// Which step, from 1.
        step: u64,
    },
}

/// How training data becomes chunks, as [`Packing::Stream`] does it: a run that was begun by another rule is another run.
const STREAM_RULE: &str = "stream 1";
/// The same of rows of token ids.
const ROWS_RULE: &str = "rows 1";

/// How documents become chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// For training: documents follow each other, each ended by the end-of-text token; the last chunk is
    /// padded with masked tokens.
    Stream,
    /// For evaluation: every document by itself and nothing added to it; its last chunk is padded.
    PerDocument,
}

/// What reads text.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    /// Turns text into ids.
    pub tokenizer: Option<&'a Tokenizer>,
    /// Ends a document.
    pub eos: Option<u32>,
    /// Ids below this are the student's.
    pub vocab: u32,
}

/// A sequence of at most seq_len + 1 tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    pub ids: Vec<u32>,
    /// What each token is predicted as, [`MASKED_TOKEN`] where it does not count; none where it is as itself.
    pub labels: Option<Vec<u32>>,
}

impl Chunk {
    /// Tokens that are predicted as themselves.
    pub fn plain(ids: impl Into<Vec<u32>>) -> Self {
        Self { ids: ids.into(), labels: None }
    }

    /// What each token but the first is predicted as, from the ones before it.
    pub fn targets(&self) -> &[u32] {
        self.labels.as_ref().unwrap_or(&self.ids).get(1..).unwrap_or_default()
    }

    /// Tokens that count.
    pub fn counted(&self) -> usize {
        self.targets().iter().filter(|target| **target != MASKED_TOKEN).count()
    }

    /// Everything that is learnt from it, as bytes: for digests.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        [&self.ids].into_iter().chain(&self.labels).map(|words| bytemuck::cast_slice(words))
    }
}

/// Chunks of at most seq_len + 1 tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    chunks: Vec<Chunk>,
    digest: Digest,
    /// Rules by which files became chunks.
    rules: BTreeSet<&'static str>,
    has_text: bool,
    notes: Vec<String>,
    passed_over: usize,
}

impl Dataset {
    /// Reads files, in order. `.bin` files are u32 little-endian ids, cut in order into whole chunks of seq_len + 1; `.txt` is
    /// one document; `.jsonl` one a line: `{"text": ...}`, or a row `{"input_ids": [...], "labels": [...]}`, which is one
    /// chunk, cut to seq_len + 1. Rows with nothing that counts in theirs are passed over.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn read(paths: &[PathBuf], seq_len: u32, packing: Packing, reader: Reader<'_>) -> Result<Self, DataError> {
        let chunk = seq_len as usize + 1;
        let mut digests = Vec::new();
        let mut dataset = Self::empty();
        for path in paths {
            let bytes = map(path).map_err(|error| DataError::Io { path: path.clone(), error })?;
            digests.push(Digest::of(&bytes));
            let extension = path.extension().and_then(|extension| extension.to_str());
            refuse_disguise(path, extension, &bytes)?;
            let of_file = match extension {
                Some("bin") => {
                    dataset.rules.insert(STREAM_RULE);
                    cut_ids(path, &bytes, chunk)?
                }
                Some("jsonl" | "json") if is_rows(path, &bytes)? => {
                    let Rows { chunks, passed_over } = Rows::jsonl(path, &bytes, chunk, reader.vocab)?;
                    dataset.rules.insert(ROWS_RULE);
                    dataset.pass_over(path, passed_over, chunks.len() + passed_over, chunk);
                    chunks
                }
                Some("jsonl" | "json") => {
                    dataset.pack(path, Documents::jsonl(path, &bytes)?, chunk, packing, reader)?
                }
                Some("txt" | "md") => dataset.pack(path, Documents::text(path, &bytes)?, chunk, packing, reader)?,
                _ => return Err(DataError::Kind { path: path.clone() }),
            };
            if of_file.iter().all(|chunk| chunk.counted() == 0) {
                let is_ids = path.extension().is_some_and(|extension| extension == "bin");
                return Err(match is_ids && chunk > 1 {
                    true => DataError::TooShort { path: path.clone(), tokens: bytes.len() / 4, chunk },
                    false => DataError::NothingToPredict { path: path.clone() },
                });
            }
            check_vocabulary(path, &of_file, reader.vocab)?;
            dataset.chunks.extend(of_file);
        }
        dataset.digest = Digest::of_parts("precast.data", digests.iter().map(|digest| &digest.0[..]));
        Ok(dataset)
    }

    fn empty() -> Self {
        Self {
            chunks: Vec::new(),
            digest: Digest::of(b""),
            rules: BTreeSet::new(),
            has_text: false,
            notes: Vec::new(),
            passed_over: 0,
        }
    }

    /// The chunks of a file of text.
    fn pack(
        &mut self,
        path: &Path,
        documents: Documents<'_>,
        chunk: usize,
        packing: Packing,
        reader: Reader<'_>,
    ) -> Result<Vec<Chunk>, DataError> {
        self.has_text = true;
        self.rules.insert(STREAM_RULE);
        Ok(pack(documents.tokenize(path, reader)?, chunk, packing))
    }

    /// Counts rows that are not learnt from.
    fn pass_over(&mut self, path: &Path, rows: usize, of: usize, chunk: usize) {
        self.passed_over += rows;
        if rows > 0 {
            let path = path.display();
            self.notes.push(format!(
                "{path}: {rows} of {of} rows have no token that counts among their first seq_len + 1 = {chunk}: passed over"
            ));
        }
    }

    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// How files became chunks: a run that was begun by another rule is another run.
    pub fn packing(&self) -> String {
        self.rules.iter().copied().collect::<Vec<_>>().join(", ")
    }

    /// Whether any of it came through a tokenizer.
    pub fn has_text(&self) -> bool {
        self.has_text
    }

    /// What people should know of it.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Rows that are not learnt from.
    pub fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Digest of the files.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

/// Refuses what stands in place of the data. A web page may well be a document to learn from.
fn refuse_disguise(path: &Path, extension: Option<&str>, bytes: &[u8]) -> Result<(), DataError> {
    let what = match extension {
        Some("bin") => Disguise::of(bytes),
        Some("txt" | "md") => Disguise::of_text(bytes).filter(|what| *what != Disguise::WebPage),
        _ => Disguise::of_text(bytes),
    };
    what.map_or(Ok(()), |what| Err(DataError::Disguised { path: path.to_owned(), what }))
}

/// Whether the first row of a file is token ids.
fn is_rows(path: &Path, bytes: &[u8]) -> Result<bool, DataError> {
    let first = utf8(path, bytes)?.lines().enumerate().find(|(_, line)| !line.trim().is_empty());
    let Some((index, line)) = first else { return Ok(false) };
    let unreadable = |reason| DataError::FirstRow { path: path.to_owned(), line: index + 1, reason };
    Columns::of(line).map(|columns| columns != TEXT).map_err(unreadable)
}

fn cut_ids(path: &Path, bytes: &[u8], chunk: usize) -> Result<Vec<Chunk>, DataError> {
    if !bytes.len().is_multiple_of(4) {
        return Err(DataError::Ragged { path: path.to_owned(), bytes: bytes.len() as u64 });
    }
    let whole = bytes.chunks_exact(4 * chunk);
    let id = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(whole.map(|bytes| Chunk::plain(bytes.chunks_exact(4).map(id).collect::<Vec<_>>())).collect())
}

/// Cuts tokenized documents into chunks. Consecutive chunks of a stream share no token: the first token of a
/// chunk is predicted by nothing, as in `.bin` files. A chunk of one token has nothing to predict.
fn pack(documents: Vec<Vec<u32>>, chunk: usize, packing: Packing) -> Vec<Chunk> {
    let streams = match packing {
        Packing::Stream => vec![documents.concat()],
        Packing::PerDocument => documents,
    };
    let chunks = streams.iter().flat_map(|stream| stream.chunks(chunk));
    chunks.filter(|chunk| chunk.len() > 1).map(Chunk::plain).collect()
}

fn check_vocabulary(path: &Path, chunks: &[Chunk], vocab: u32) -> Result<(), DataError> {
    match chunks.iter().flat_map(|chunk| &chunk.ids).enumerate().find(|(_, id)| **id >= vocab) {
        Some((index, id)) => Err(DataError::Vocabulary { path: path.to_owned(), index, id: *id, vocab }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TEXT: Reader<'static> = Reader { tokenizer: None, eos: None, vocab: 100 };

    fn file(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        (dir, path)
    }

    fn ids(ids: &[u32]) -> Vec<u8> {
        ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    fn read(path: PathBuf, seq_len: u32) -> Result<Dataset, DataError> {
        Dataset::read(&[path], seq_len, Packing::Stream, NO_TEXT)
    }

    #[test]
    fn bin_files_are_cut_into_whole_chunks_in_order() {
        let (_dir, path) = file("a.bin", &ids(&[1, 2, 3, 4, 5, 6, 7]));
        assert_eq!(read(path, 2).unwrap().chunks(), [[1, 2, 3], [4, 5, 6]].map(Chunk::plain));
    }

    #[test]
    fn bad_files_are_named() {
        let (_a, ragged) = file("a.bin", &[1, 2, 3, 4, 5]);
        assert!(matches!(read(ragged, 2), Err(DataError::Ragged { bytes: 5, .. })));
        let (_b, empty) = file("b.bin", &[]);
        assert!(matches!(read(empty, 2), Err(DataError::TooShort { tokens: 0, chunk: 3, .. })));
        let (_c, wide) = file("c.bin", &ids(&[1, 2, 100]));
        assert!(matches!(read(wide, 2), Err(DataError::Vocabulary { index: 2, id: 100, vocab: 100, .. })));
        let (_d, kind) = file("d.csv", b"1,2");
        assert!(matches!(read(kind, 2), Err(DataError::Kind { .. })));
        let (_e, text) = file("e.txt", b"text");
        assert!(matches!(read(text, 2), Err(DataError::NoTokenizer { .. })));
        let (_f, line) = file("f.jsonl", b"{\"text\": \"one\"}\n{\"no\": 1}\n");
        assert!(matches!(read(line, 2), Err(DataError::Jsonl { line: 2, .. })));
        assert!(matches!(read("/no/such.bin".into(), 2), Err(DataError::Io { .. })));
    }

    #[test]
    fn streams_run_on_and_documents_stand_alone() {
        let documents = || vec![vec![1, 2, 3, 9], vec![4, 5, 9]];
        assert_eq!(pack(documents(), 3, Packing::Stream), [[1, 2, 3], [9, 4, 5]].map(Chunk::plain));
        assert_eq!(pack(documents(), 3, Packing::PerDocument), [[1, 2, 3], [4, 5, 9]].map(Chunk::plain));
    }
}
