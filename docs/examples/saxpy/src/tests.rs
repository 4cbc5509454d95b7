use precast_core::Arch;

use super::saxpy::KERNELS;

#[test]
fn the_kernel_is_its_reference_without_a_race() -> Result<(), precast_simt::CheckError> {
    println!("{}", precast_simt::check(&KERNELS, [Arch::Sm89, Arch::Sm90a])?);
    Ok(())
}

#[test]
fn the_committed_rust_is_of_the_header() -> Result<(), precast_aot::abi::Stale> {
    precast_aot::abi::check("src/saxpy", "src/saxpy/abi.rs")
}
