//! Compiles the kernels and embeds their machine code.

#[path = "src/smooth/mod.rs"]
mod smooth;

fn main() -> Result<(), precast_aot::EmbedError> {
    precast_aot::embed(&smooth::KERNELS).archs(["sm_89", "sm_90", "sm_121"]).emit()
}
