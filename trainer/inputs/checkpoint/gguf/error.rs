//! Why a GGUF file cannot be used.

use std::path::PathBuf;

use super::blocks::{BlockType, type_name};
use crate::inputs::checkpoint::cursor::Unreadable;

/// A GGUF file that cannot be used: which one, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct GgufError {
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a GGUF file. Offsets are in bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file cannot be opened or mapped.
    #[error("cannot read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is something else.
    #[error("not a GGUF file: it starts with {found:02x?}, expected the bytes of \"GGUF\"")]
    Magic {
        /// First bytes, at most four.
        found: Vec<u8>,
    },
    /// A version with another layout.
    #[error(
        "GGUF version {found} at byte 4 is not supported: 2 and 3 are{}",
        if matches!(found.swap_bytes(), 1..=3) {
            ". The file is big-endian: convert it with gguf-py's gguf_convert_endian.py"
        } else {
            ". Convert the model again with a current llama.cpp (convert_hf_to_gguf.py)"
        }
    )]
    Version {
        /// By the file.
        found: u32,
    },
    /// A part of the file does not read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// More of something than any real file has.
    #[error("{found} {what} at byte {offset}, more than {most}: the file is damaged, fetch it again")]
    TooMany {
        what: String,
        /// Where it is said.
        offset: u64,
        /// By the file.
        found: u64,
        most: u64,
    },
    /// Metadata and table of tensors longer than any real file's.
    #[error("metadata and table of tensors take more than {most} bytes: the file is damaged, fetch it again")]
    LongHeader { most: usize },
    /// A metadata key or tensor name that is there twice.
    #[error("{what} {name} at byte {offset} occurs twice: the file is damaged, fetch it again")]
    Duplicate {
        /// metadata key, tensor.
        what: &'static str,
        name: String,
        /// Where the second one starts.
        offset: u64,
    },
    /// A metadata value of a type that GGUF does not define, or an array of arrays.
    #[error("metadata key {key} at byte {offset} has {what} type {code}, which is not supported")]
    ValueType {
        key: String,
        /// Where its entry starts.
        offset: u64,
        /// value, array item.
        what: &'static str,
        /// By the file.
        code: u32,
    },
    /// A metadata key that is needed and not there.
    #[error("no metadata key {key}: convert the model again with a current llama.cpp (convert_hf_to_gguf.py)")]
    MissingKey { key: String },
    /// A metadata value of the wrong type.
    #[error("metadata key {key} at byte {offset} is {found}, expected {expected}")]
    KeyType {
        key: String,
        /// Where its entry starts.
        offset: u64,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: &'static str,
    },
    /// A metadata value that cannot be, or that this program does not follow.
    #[error("metadata key {key} at byte {offset} is {found}: {expected}")]
    KeyValue {
        key: String,
        /// Where its entry starts.
        offset: u64,
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A tensor whose shape cannot be.
    #[error("tensor {tensor} at byte {offset} has shape {shape:?} (columns first): {reason}")]
    Shape {
        /// Its name in the file.
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// As in the file, columns first.
        shape: Vec<u64>,
        /// What is wrong with it.
        reason: String,
    },
    /// A tensor whose values do not start on the file's alignment.
    #[error(
        "tensor {tensor} at byte {offset}: its values start at offset {data_offset} of the data, not a multiple of \
         the file's alignment {alignment}: the file is damaged, fetch it again"
    )]
    Misaligned {
        /// Its name in the file.
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// Where its values start, from the start of the data.
        data_offset: u64,
        /// By the file, bytes.
        alignment: u64,
    },
    /// A tensor whose values do not follow those before them.
    #[error(
        "tensor {tensor} at byte {offset}: its values start at offset {data_offset} of the data, expected {expected}, behind \
         those of the tensor before: the file is damaged, fetch it again"
    )]
    Place {
        /// Its name in the file.
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// Where its values start, from the start of the data.
        data_offset: u64,
        /// Where they should, at the earliest behind a type that is not read.
        expected: u64,
    },
    /// A tensor of a type that is not dequantised.
    #[error(
        "tensor {tensor} at byte {offset} is of type {}: supported are {}",
        type_name(*code),
        BlockType::ALL.map(BlockType::name).join(", ")
    )]
    TensorType {
        /// Its name in the file.
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// By the file.
        code: u32,
    },
    /// A tensor that a model of the architecture does not have.
    #[error(
        "tensor {tensor} at byte {offset} has no place in a {architecture} model that this program knows: {reason}"
    )]
    UnknownTensor {
        /// Its name in the file.
        tensor: String,
        /// Where its entry starts.
        offset: u64,
        /// By the file.
        architecture: &'static str,
        /// What it means.
        reason: &'static str,
    },
    /// A tensor that is needed or asked for and not there.
    #[error("the file has no tensor {tensor}")]
    MissingTensor {
        /// Its Hugging Face name.
        tensor: String,
    },
    /// A buffer that is not the tensor's size.
    #[error("tensor {tensor} has {elements} elements and the buffer to read it into {buffer}")]
    Length {
        /// Its Hugging Face name.
        tensor: String,
        /// Of the tensor.
        elements: usize,
        /// Of the buffer.
        buffer: usize,
    },
    /// An item of an array in the metadata that cannot be used.
    #[error("metadata key {key} at byte {offset}: item {index} {reason}")]
    Item {
        /// The array's key.
        key: &'static str,
        /// Where its entry starts.
        offset: u64,
        /// Place in the array, from 0.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The tokenizers library refuses what the file describes.
    #[error("cannot build the tokenizer: {0}")]
    Tokenizer(String),
}
