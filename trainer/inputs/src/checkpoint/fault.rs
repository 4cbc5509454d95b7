//! Why a file that holds a whole model cannot be used.

use std::io;

/// Why a file cannot be used. Offsets are in bytes from its start.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be opened or read.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
    /// It ends early, or a length in it is absurd.
    #[error(
        "{what} at byte {offset} takes {needed_bytes} bytes and the file ends at byte {file_bytes}: \
         it is truncated or damaged, fetch it again"
    )]
    Truncated {
        /// The part of it that ends early.
        what: String,
        /// Where that starts.
        offset: u64,
        /// How long that is.
        needed_bytes: u64,
        /// Size of the file.
        file_bytes: u64,
    },
    /// It holds what cannot be, or what this program does not follow.
    #[error("{0}")]
    Wrong(String),
}

impl Fault {
    /// The error for what no writer of such files writes.
    pub(super) fn damaged(what: impl std::fmt::Display) -> Self {
        Self::Wrong(format!("{what}: the file is damaged, fetch it again"))
    }

    /// The error for a tokenizer that the library does not build.
    pub(super) fn tokenizer(error: tokenizers::Error) -> Self {
        Self::Wrong(format!("cannot build the tokenizer: {error}"))
    }
}
