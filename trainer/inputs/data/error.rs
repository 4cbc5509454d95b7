//! What is wrong with data.

use std::fmt;
use std::path::PathBuf;

use precast_system::count;

use super::rows::RowFault;
use crate::base::impostors::Disguise;

/// Data that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DataError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Io { path: PathBuf, reason: String },
    /// The file is not what its name says.
    #[error("{} {what}", path.display())]
    Disguised {
        path: PathBuf,
        /// What it is.
        what: Disguise,
    },
    /// The file's name does not say what it holds.
    #[error("{}: unknown kind of data: expected .bin (u32 token ids), .jsonl, .parquet or .txt", path.display())]
    Kind { path: PathBuf },
    /// A directory without data.
    #[error("{}: no data in this directory: expected .bin, .jsonl, .parquet or .txt files", path.display())]
    EmptyDirectory { path: PathBuf },
    /// A directory in a directory.
    #[error("{}: a directory among data files: only the files of a directory are read; name it with a --data of its own", path.display())]
    Nested { path: PathBuf },
    /// A directory of data of different kinds.
    #[error(
        "{}: {} has {first}, and {} has {other}: a directory holds rows of one kind; name each file with a --data of its own",
        path.display(), first_file.display(), other_file.display()
    )]
    MixedDirectory {
        path: PathBuf,
        /// The name of the first file.
        first_file: PathBuf,
        /// What it holds.
        first: String,
        /// The name of the first that holds something else.
        other_file: PathBuf,
        /// What that holds.
        other: String,
    },
    /// A `.bin` file is not whole ids.
    #[error("{}: {bytes} bytes are not a whole number of u32 token ids: it is cut short, or of another type; write ids as 4 bytes each", path.display())]
    Ragged { path: PathBuf, bytes: u64 },
    /// Nothing to learn from.
    #[error("{}: {tokens} tokens do not fill one chunk of seq_len + 1 = {chunk}: give more data or a smaller --seq-len", path.display())]
    TooShort {
        path: PathBuf,
        /// Tokens in it.
        tokens: u64,
        /// Tokens of a chunk: `seq_len + 1`.
        chunk: usize,
    },
    /// A token the student does not know.
    #[error("{}: token {index} has id {id}, the student's vocabulary ends at {vocab}: tokenize for this model", path.display())]
    Vocabulary {
        path: PathBuf,
        index: u64,
        id: u32,
        /// Size of the vocabulary.
        vocab: u32,
    },
    /// A row cannot be used.
    #[error("{}{place}: {fault}", path.display())]
    Row {
        path: PathBuf,
        /// Where it stands.
        place: Place,
        /// The reason why it cannot be used.
        fault: RowFault,
    },
    /// A parquet file does not read.
    #[error("{}: {reason}: not a parquet file that can be read; write it again, compressed by snappy, zstd, gzip or not at all", path.display())]
    Parquet { path: PathBuf, reason: String },
    /// A parquet file has none of the columns that rows are made of.
    #[error("{}: {fault}", path.display())]
    Columns {
        path: PathBuf,
        /// What it has instead.
        fault: RowFault,
    },
    /// A text file is not UTF-8.
    #[error("{}: not UTF-8 text: {error}", path.display())]
    Utf8 { path: PathBuf, error: std::str::Utf8Error },
    /// Text, and no tokenizer to read it with.
    #[error("{} is text and the model has no tokenizer.json: put one beside its config.json, or give .bin token ids", path.display())]
    NoTokenizer { path: PathBuf },
    /// Messages, and no template to render them by.
    #[error(
        "{} has {kind}, and the model has no chat template: put a chat_template.jinja beside its config.json, or give rows of \
         text or input_ids",
        path.display()
    )]
    NoTemplate {
        path: PathBuf,
        /// The columns.
        kind: &'static str,
    },
    /// The tokenizer fails.
    #[error("{}: the tokenizer fails: {reason}", path.display())]
    Tokenizer { path: PathBuf, reason: String },
    /// A document that tokenizing would take too much memory for.
    #[error(
        "{}: a document of {bytes} bytes: at most {most} are tokenized at a time; \
         split it into several, one per line of a .jsonl file",
        path.display()
    )]
    LongDocument { path: PathBuf, bytes: u64, most: u64 },
    /// A file without rows, or all of whose texts are empty.
    #[error("{}: {}; is it the right file?{}", path.display(), empty(*rows), of_field(*rows))]
    Empty { path: PathBuf, rows: u64 },
    /// All that counts is cut off.
    #[error(
        "{}: no token to predict: {} cut to seq_len + 1 = {chunk} tokens before the first one that counts, as where the assistant speaks \
         after a long prompt: --seq-len {reaches} reaches the nearest",
        path.display(), rows_are(*rows)
    )]
    CutBefore {
        path: PathBuf,
        rows: u64,
        /// Tokens of a chunk.
        chunk: usize,
        /// The least seq_len that reaches a token that counts.
        reaches: u64,
    },
    /// There are tokens and none of them is to be predicted.
    #[error("{}: no token to predict: a sequence needs at least two, and one that is not masked", path.display())]
    NothingToPredict { path: PathBuf },
    /// Every token of a step is masked.
    #[error("step {step} has no token to predict: every target of its batches is masked")]
    NothingCounted {
        /// Which step, from 1.
        step: u64,
    },
    /// A file is not as it was at the start.
    #[error("{} was changed while the run read it: start the run again with --overwrite", path.display())]
    Changed { path: PathBuf },
}

fn empty(rows: u64) -> String {
    match rows {
        0 => "no rows in it".to_owned(),
        1 => "its text is empty".to_owned(),
        rows => format!("all {rows} texts in it are empty"),
    }
}

fn of_field(rows: u64) -> &'static str {
    if rows > 1 { " --data-field names another column" } else { "" }
}

fn rows_are(rows: u64) -> String {
    count(rows as usize, "row") + if rows == 1 { " is" } else { " are" }
}

/// Where in a file a row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A line of text, from 1.
    Line(u64),
    /// A row of a table, from 1.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(number) => write!(f, ":{number}"),
            Self::Row(number) => write!(f, ": row {number}"),
        }
    }
}
