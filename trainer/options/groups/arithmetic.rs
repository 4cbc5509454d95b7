//! Options of the arithmetic of a step.

use clap::Args;
use precast_plan::{Gemm, Moments, Precision, Recompute};
use serde::Serialize;

use super::Change;
use crate::options::UsageError;
use crate::options::ship::FileBlock;

/// Arithmetic of a step.
#[derive(Args, Clone, Copy, Debug, Serialize)]
#[command(next_help_heading = "Precision")]
pub struct ArithmeticOptions {
    /// Arithmetic: fp32, bf16 or int8
    ///
    /// int8 is bf16, except in linear layers that train: 8-bit matrix multiplications of rotated and rounded operands
    /// compute their outputs and the gradients of their inputs (docs/guides/int8-training.md).
    #[arg(long, value_name = "P", default_value_t = Precision::Bf16)]
    pub precision: Precision,
    /// Library of the matrix multiplications of linear layers: bundle (its kernels) or cublas (NVIDIA's cuBLASLt 13,
    /// opened only then: libcublasLt.so.13 in $PRECAST_CUBLAS, on the library path or in a CUDA toolkit); the bits
    /// differ
    #[arg(long, value_name = "WHAT", default_value_t)]
    pub gemm: Gemm,
    /// Recompute in the backward pass instead of keeping, for less memory at the same bits: none, norms (the bare flag;
    /// SwiGLU too) or blocks (all but the residual stream)
    #[arg(long, value_name = "WHAT", default_value_t, num_args = 0..=1, default_missing_value = "norms",
          help_heading = "Memory", add = Change::AtResume)]
    pub recompute: Recompute,
    /// Format of AdamW's moments: fp32 or bf16, half the memory, rounded up or down at random so that the mean is right
    ///
    /// Step and element decide the random bits: a run has the same weights on any number of GPUs, and continued.
    #[arg(long, value_name = "F", default_value_t, help_heading = "Memory")]
    pub moments: Moments,
    /// Train for a GGUF file in this format, q8_0, q4_0 or q4_k: behind each update the student's matrices are
    /// quantized to its blocks, and steps compute with the values that these have
    ///
    /// Gradients go to the fp32 weights, which the result holds: precast export --format of it writes the blocks that
    /// were trained. Rows that are no whole blocks of 256 take q5_0 in place of q4_k.
    #[arg(long, value_name = "F", value_parser = FileBlock::of_layers, help_heading = "Precision")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ship: Option<FileBlock>,
    /// Format of embedding and head in that file, q8_0 or q6_k, for which q8_0 stands where rows are no whole blocks of
    /// 256 [default: q8_0 with --ship q8_0, else q6_k]
    #[arg(long, value_name = "F", value_parser = FileBlock::of_head, help_heading = "Precision")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ship_head: Option<FileBlock>,
}

impl ArithmeticOptions {
    /// Refuses to train for a file where an adapter trains, and a format of its head without one of its layers.
    ///
    /// # Errors
    /// [`UsageError`].
    pub(crate) fn check_ship(&self, has_adapter: bool) -> Result<(), UsageError> {
        match (self.ship, self.ship_head) {
            (None, Some(_)) => Err(UsageError("--ship-head requires --ship".to_owned())),
            (Some(_), _) if has_adapter => Err(UsageError(
                "--ship trains all of a model for its file, and cannot be combined with --lora-rank or --adapter: \
                merge the adapter (precast merge), and train the result with --ship"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }
}
