//! The machine code on a GPU: `cargo test -- --ignored`.

#[allow(dead_code)]
#[path = "../src/softmax/mod.rs"]
mod softmax;

use precast_runtime::{Loading, selftest};
use softmax::KERNELS;

#[test]
#[ignore = "needs a GPU"]
fn machine_code_computes_its_references_on_a_gpu() -> Result<(), Box<dyn std::error::Error>> {
    let bundle = precast_runtime::embedded!().bundle(&KERNELS)?;
    let checked = selftest::check(Loading::cuda(0, &bundle)?, &bundle)?;
    println!("{} launches, at most {:.1e} from their references", checked.launches, checked.worst.norm);
    for timed in selftest::measure(Loading::cuda(0, &bundle)?, &bundle)? {
        println!("{}: {:.1} us for {} bytes", timed.pair, 1e6 * timed.seconds, timed.bytes);
    }
    Ok(())
}

#[test]
fn the_samples_of_every_kernel_can_be_checked() -> Result<(), Box<dyn std::error::Error>> {
    let bundle = precast_runtime::embedded!().bundle(&KERNELS)?;
    assert_eq!(selftest::check(Loading::sim(), &bundle)?.launches, 5 * 2 * 2);
    Ok(())
}
