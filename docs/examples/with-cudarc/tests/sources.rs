//! The CUDA source, executed on this machine under a checker of races, bounds and barriers; no GPU takes part.

use precast_core::Arch;
use with_cudarc::smooth::KERNELS;

#[test]
fn kernels_compute_their_references_without_a_race() -> Result<(), precast_simt::CheckError> {
    println!("{}", precast_simt::check(&KERNELS, [Arch::Sm89])?);
    Ok(())
}

#[test]
fn the_declaration_in_rust_is_of_the_header() -> Result<(), precast_aot::abi::Stale> {
    precast_aot::abi::check("src/smooth", "src/smooth/abi.rs")
}
