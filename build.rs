//! Compiles and embeds the kernels of the architectures asked for as features; with none, embeds nothing and needs no
//! CUDA toolchain.

#[cfg(not(feature = "_kernels"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "_kernels")]
fn main() -> Result<(), precast_aot::EmbedError> {
    precast_models::Selection::of_build(precast_aot::features())?.embed().framed(cfg!(feature = "all")).emit()
}
