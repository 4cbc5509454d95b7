//! What unit tests of caches share.

use precast_fatbins::Digest;
use precast_plan::Precision;

use crate::inputs::teacher_cache::{FORMAT, FilledBy, Made};

/// A cache of a teacher whose rows have four bytes.
pub(crate) fn made() -> Made {
    Made {
        format: FORMAT,
        teacher_sha256: Digest::of(b"teacher"),
        teacher_config_sha256: Digest::of(b"config"),
        teacher_stored: "BF16, 12 tensors".to_owned(),
        precision: Precision::Bf16,
        hidden: 2,
        vocab: 16,
        compact: None,
        seq_len: 8,
        filled_by: Some(FilledBy { kernels_sha256: Digest::of(b"kernels"), arch: "sim".to_owned() }),
        data_sha256: Digest::of(b"data"),
        held_out_sha256: None,
    }
}
