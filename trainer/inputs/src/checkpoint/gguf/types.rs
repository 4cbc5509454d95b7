//! The types of tensors in a GGUF file.

use precast_kernels::Block;

use crate::checkpoint::kind::Kind;

/// Names of ggml's types by code; empty where there is none any more.
const NAMES: [&str; 41] = [
    "F32", "F16", "Q4_0", "Q4_1", "", "", "Q5_0", "Q5_1", "Q8_0", "Q8_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
    "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8", "I16", "I32", "I64",
    "F64", "IQ1_M", "BF16", "", "", "", "TQ1_0", "TQ2_0", "", "", "", "MXFP4", "NVFP4",
];

/// Those that are read.
pub(super) fn read() -> impl Iterator<Item = Kind> {
    [Kind::F32, Kind::F16, Kind::Bf16].into_iter().chain(Block::ALL.map(Kind::Block))
}

/// How errors name the type with this code.
pub(super) fn name(code: u32) -> String {
    match NAMES.get(code as usize) {
        Some(name) if !name.is_empty() => (*name).to_owned(),
        _ => format!("{code} (which ggml does not define)"),
    }
}

/// The type with this code, if it is one that is read.
pub(super) fn of_code(code: u32) -> Option<Kind> {
    read().find(|kind| kind.to_string() == name(code))
}

/// The code of a type in files.
pub(super) fn code(kind: Kind) -> u32 {
    let name = kind.to_string();
    NAMES.iter().position(|one| *one == name).expect("ggml has every type that is read") as u32
}
