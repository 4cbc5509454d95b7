//! APR files of version 2: single-file models with Hugging Face's names, read as if they were Hugging Face directories.
//!
//! [`Apr`] reads the file's head; weights are read, and dequantized, one tensor at a time. A file is not trusted: whatever is
//! wrong with it is an [`FileError`], and nothing is allocated on the word of a length that the file's size does not bear
//! out. Its checksum is compared before the first weight is handed out.

mod config;
mod container;
mod tokenizer;

use std::path::{Path, PathBuf};

use precast_plan::Family;
use tokenizers::Tokenizer;

use super::checksum::Checksum;
use super::fault::{Fault, FileError};
use super::file::WeightFile;
use super::heads::Interleaved;
use super::store::Tensors;
use config::Metadata;
use container::{HEADER_BYTES, Header, MAGIC};

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// An APR file of a model of a known family: head read, weights on disk.
pub struct Apr {
    path: PathBuf,
    metadata: Metadata,
    family: &'static Family,
    pub(super) tensors: Tensors,
    /// Whether the head is there with no elements: the embedding stands for it.
    empty_head: bool,
}

impl Apr {
    /// True if the file starts with the magic of APR files of version 2. False for one that cannot be read.
    pub fn is_apr(path: &Path) -> bool {
        WeightFile::open(path).and_then(|file| file.head(4)).is_ok_and(|head| head == MAGIC)
    }

    /// Reads a file's head and finds every tensor's place. No weights are read. The file must not be written to for as long
    /// as the value lives.
    ///
    /// # Errors
    /// [`FileError`] for a file that cannot be read, is damaged, compressed or one of several, or of another family.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::read(path).map_err(|fault| fault.at(path))
    }

    fn read(path: &Path) -> Result<Self, Fault> {
        let file = WeightFile::open(path)?;
        let header = Header::read(&file.head(HEADER_BYTES)?, file.bytes)?;
        let head = file.head(header.data_offset)?;
        let index = header.index(&head, file.bytes)?.into_iter();
        let metadata = Metadata::read(header.metadata(&head))?;
        let family = config::family(&metadata)?;
        let interleaved = config::interleaves_heads(&metadata, family)?;
        // Where they are not right, the configuration says so.
        let heads = config::head_counts(&metadata).ok().filter(|_| interleaved);
        let mut tensors = Tensors {
            files: vec![(path.to_owned(), file)],
            list: index.map(|named| (named.name, named.tensor)).collect(),
            interleaved: heads.map(|(heads, kv_heads)| Interleaved { family, heads, kv_heads }),
            checksum: Some(Checksum::default()),
        };
        let empty_head = tensors.list.get(HEAD).is_some_and(|head| head.elements() == 0);
        if empty_head {
            tensors.list.remove(HEAD);
        }
        Ok(Self { path: path.to_owned(), metadata, family, tensors, empty_head })
    }

    /// The model's shape as the value of a Hugging Face `config.json`.
    ///
    /// # Errors
    /// [`FileError`] for keys that are missing or of the wrong type, and for settings that would change the mathematics.
    pub fn config(&self) -> Result<serde_json::Value, FileError> {
        config::config(self).map_err(|fault| self.error(fault))
    }

    /// The tokenizer, from the file's own metadata.
    ///
    /// # Errors
    /// [`FileError`] for lists that do not go together.
    pub fn tokenizer(&self) -> Result<Tokenizer, FileError> {
        tokenizer::tokenizer(&self.metadata).map_err(|fault| self.error(fault))
    }

    /// True if the file has a tokenizer that can be built: one of a family whose models all split text alike.
    pub(super) fn has_tokenizer(&self) -> bool {
        tokenizer::is_there(&self.metadata, self.family)
    }

    /// What belongs beside the tokenizer, as the value of a `tokenizer_config.json`.
    ///
    /// # Errors
    /// [`FileError`] as [`Apr::tokenizer`].
    pub fn tokenizer_config(&self) -> Result<serde_json::Value, FileError> {
        tokenizer::config(&self.metadata).map_err(|fault| self.error(fault))
    }

    fn error(&self, fault: Fault) -> FileError {
        fault.at(&self.path)
    }
}
