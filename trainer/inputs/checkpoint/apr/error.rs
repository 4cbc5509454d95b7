//! Why an APR file cannot be used.

use std::path::PathBuf;

use precast_plan::ConfigError;

use super::dtype::{SUPPORTED, dtype_name};
use crate::inputs::checkpoint::cursor::Unreadable;

/// An APR file that cannot be used: which one, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct AprError {
    pub path: PathBuf,
    /// The reason why it cannot be used.
    pub fault: Fault,
}

/// What is wrong with an APR file. Offsets are in bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file cannot be opened or read.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// The configuration cannot be followed.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file is something else.
    #[error("not an APR file: it starts with {found:02x?}, expected 41 50 52 00")]
    Magic {
        /// First bytes, at most four.
        found: Vec<u8>,
    },
    /// A version with another layout.
    #[error("APR version {major}.{minor} at byte 4 is not supported: 2.0 is. Convert the model again")]
    Version { major: u8, minor: u8 },
    /// A checksum that does not hold.
    #[error(
        "the checksum of {of} is {found:08x} and the file says {said:08x}: it is cut short or damaged, fetch it again"
    )]
    Checksum {
        /// the header, the file.
        of: &'static str,
        /// By the file.
        said: u32,
        /// Of its bytes.
        found: u32,
    },
    /// A flag under which the file has another layout or meaning.
    #[error("flag {name} ({bit:#x}) at byte 6: {remedy}")]
    Flag {
        name: &'static str,
        bit: u16,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Sections that are not where the format has them.
    #[error("{what} at byte {offset} is {found}, expected {expected}: the file is damaged, fetch it again")]
    Layout {
        what: &'static str,
        /// Where it is said.
        offset: u64,
        /// By the file.
        found: u64,
        /// What it should be.
        expected: String,
    },
    /// A part of the file does not read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The metadata is not a JSON object.
    #[error("metadata at byte 64 is not a JSON object ({0}): the file is damaged, fetch it again")]
    Json(String),
    /// A metadata key that is needed and not there.
    #[error("no metadata key {key}: {expected}. Convert the model again")]
    MissingKey {
        key: &'static str,
        /// What it says.
        expected: String,
    },
    /// A metadata value that cannot be, or that this program does not follow.
    #[error("metadata key {key} is {found}: {expected}")]
    Key {
        key: String,
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Names that are not in order, or there twice.
    #[error(
        "tensor {tensor} at byte {offset} comes after {before}: names must ascend. The file is damaged, fetch it again"
    )]
    Order {
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// The name before it.
        before: String,
    },
    /// A tensor whose shape, size or place cannot be.
    #[error("tensor {tensor} at byte {offset} of shape {shape:?}: {reason}")]
    Tensor {
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// Rows first.
        shape: Vec<u64>,
        /// The reason why it cannot be used.
        reason: String,
    },
    /// A tensor of a type that is not read.
    #[error(
        "tensor {tensor} at byte {offset} is of type {}: supported are {}",
        dtype_name(*code),
        SUPPORTED.join(", ")
    )]
    Dtype {
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// By the file.
        code: u8,
    },
    /// The tokenizers library refuses what the file describes.
    #[error("cannot build the tokenizer: {0}")]
    Tokenizer(String),
}
