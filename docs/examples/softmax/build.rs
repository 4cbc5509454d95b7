//! Compiles the kernels and embeds their machine code.

#[path = "src/softmax/mod.rs"]
mod softmax;

fn main() -> Result<(), precast_aot::EmbedError> {
    precast_aot::embed(&softmax::KERNELS).archs(["sm_89", "sm_90"]).emit()
}
