//! Purposes of a training plan's buffers, in the order of the memory table.

use precast_core::plan::Category;

/// Frozen teacher weights.
pub const TEACHER_WEIGHTS: Category = row(0, "teacher_weights", "teacher weights");
/// Scratch for the teacher's dequantized matrices.
pub const TEACHER_SCRATCH: Category = row(1, "teacher_scratch", "teacher scratch");
/// The student's weights: in the precision of the run, or frozen ones as stored.
pub const STUDENT_WEIGHTS: Category = row(2, "student_weights", "student weights");
/// Scratch for the frozen student's dequantized matrices.
pub const STUDENT_SCRATCH: Category = row(3, "student_scratch", "student scratch");
/// The student's adapters in the precision of the run.
pub const ADAPTERS: Category = row(4, "adapters", "adapters");
/// fp32 master weights, unless they are the weights themselves.
pub const MASTER_WEIGHTS: Category = row(5, "master_weights", "master weights");
/// First and second moments.
pub const MOMENTS: Category = row(6, "moments", "moments");
pub const GRADIENTS: Category = row(7, "gradients", "gradients");
/// Workspaces of cuBLASLt's GEMMs.
pub const CUBLAS_WORKSPACES: Category = row(8, "cublas_workspaces", "cublas workspaces");
/// The pool of keys and values that decoding attends to.
pub const KEYS_AND_VALUES: Category = row(101, "keys_and_values", "keys and values");
/// The pool of states that decoding by the delta rule reads, and of chunks that are not full.
pub const STATES: Category = row(102, "states", "states of sequences");
/// Rotary tables, inputs, scalars and metrics.
pub const INPUTS: Category = row(103, "inputs", "inputs and tables");
/// Residual streams of sequences that a sweep takes through the layers.
pub const STREAMS: Category = row(104, "streams", "residual streams");

const fn row(rank: u8, key: &'static str, name: &'static str) -> Category {
    Category { rank, key, name }
}
