//! An APR file that has been read.

use precast_plan::Family;

use super::metadata::Metadata;
use crate::checkpoint::store::Tensors;

/// An APR file of a model of a known family: head read, weights on disk.
pub struct Apr {
    pub(super) metadata: Metadata,
    pub(super) family: &'static Family,
    pub(super) tensors: Tensors,
    /// Whether the head is there with no elements: the embedding stands for it.
    pub(super) empty_head: bool,
}
