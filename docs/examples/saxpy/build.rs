//! Compiles the kernels and embeds their machine code.

#[path = "src/saxpy/mod.rs"]
mod saxpy;

fn main() -> Result<(), precast_aot::EmbedError> {
    precast_aot::embed(&saxpy::KERNELS).archs(["sm_89", "sm_90", "sm_121"]).emit()
}
