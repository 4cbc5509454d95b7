//! Compiles the kernels and embeds their machine code.

#[path = "src/kernels.rs"]
mod kernels;
#[path = "src/vectors/mod.rs"]
#[allow(dead_code)]
mod vectors;

use precast_core::Kernels;

static KERNELS: Kernels = Kernels::new("plain", vectors::abi::OPS, kernels::PLAIN);

fn main() -> Result<(), precast_aot::EmbedError> {
    let archs = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "sm_121"];
    precast_aot::embed(&KERNELS).archs(archs).include_dir("third_party/include").emit()
}
