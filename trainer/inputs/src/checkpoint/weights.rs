//! The source of a model's weights.

use std::ops::ControlFlow;

use precast_kernels::{Dtype, Format};
use precast_plan::{Formats, ModelConfig, Parameter};

use super::{CheckpointError, Scratch};

/// Bytes of weights, in scratch memory or where they are mapped.
pub type Read<'a> = Result<&'a [u8], CheckpointError>;

/// The source of a model's weights.
pub trait Weights {
    fn config(&self) -> &ModelConfig;

    /// The dtype in which all of its parameters are in memory as they are, if there is one.
    fn dtype(&self) -> Option<Dtype>;

    /// How they are stored, in words: `BF16, 290 tensors`.
    fn stored(&self) -> String;

    /// In which formats its matrices are stored.
    fn formats(&self) -> Formats;

    /// The elements of a parameter as bytes of a dtype, or the blocks that [`Self::formats`] says it is stored in; in
    /// `scratch` unless they are in memory as they are.
    ///
    /// # Errors
    /// [`CheckpointError`] where they cannot be read.
    fn read<'a>(&'a self, parameter: &Parameter, format: Format, scratch: &'a mut Scratch) -> Read<'a>;

    /// Reads a parameter in parts, in order: of [`PART_ELEMENTS`] elements where weights are read past the page cache
    /// or converted, so that the host holds no more of them, else whole. Ends where `take` breaks.
    ///
    /// # Errors
    /// [`CheckpointError`] where they cannot be read.
    fn read_parts(
        &self,
        parameter: &Parameter,
        format: Format,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), CheckpointError> {
        let _ = take(self.read(parameter, format, scratch)?);
        Ok(())
    }
}

/// Elements of a part of a parameter that is read in parts.
pub const PART_ELEMENTS: u64 = 4 << 20;
