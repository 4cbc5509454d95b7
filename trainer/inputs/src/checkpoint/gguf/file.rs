//! A GGUF file whose header has been read.

use precast_plan::Family;

use super::container::Named;
use super::metadata::Metadata;
use crate::checkpoint::store::Tensors;

/// A GGUF file of a model of a known family, version 2 or 3, little-endian: header read, weights on disk.
pub struct Gguf {
    /// The first bytes of the file: metadata and more.
    pub(super) head: Vec<u8>,
    pub(super) metadata: Metadata,
    pub(super) family: &'static Family,
    pub(super) tensors: Tensors,
    /// What rotary frequencies are divided by, if the file has it.
    pub(super) rope_factors: Option<Named>,
}
