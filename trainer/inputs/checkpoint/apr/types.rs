//! The types of tensors in an APR file.

use precast_kernels::Block;

use crate::inputs::checkpoint::kind::Kind;

/// Names of the types that are read.
pub(super) const SUPPORTED: &str = "F32, F16, BF16, Q4_K, Q6_K, AprQ4, AprQ8";

/// The type with this code, if it is one that is read. Older writers say 8 and 9 for AprQ4 and AprQ8.
pub(super) fn of_code(code: u8) -> Option<Kind> {
    Some(match code {
        0 => Kind::F32,
        1 => Kind::F16,
        30 => Kind::Bf16,
        12 => Kind::Block(Block::Q4_K),
        14 => Kind::Block(Block::Q6_K),
        8 | 128 => Kind::AprQ4,
        9 | 129 => Kind::AprQ8,
        _ => return None,
    })
}

/// How errors name the type with this code.
pub(super) fn name(code: u8) -> String {
    match (of_code(code), code) {
        (Some(known), _) => known.to_string(),
        (None, 3) => "F64".to_owned(),
        (None, 4) => "I32".to_owned(),
        (None, 5) => "I64".to_owned(),
        (None, 6) => "I8".to_owned(),
        (None, 7) => "U8".to_owned(),
        (None, code) => format!("{code} (which APR does not define)"),
    }
}
