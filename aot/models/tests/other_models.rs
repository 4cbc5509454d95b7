//! Compiles kernels that models other than the built-in ones need, for architectures of every kind.

use precast_aot::budget::Usage;
use precast_aot::compile::Task;
use precast_fatbins::ModuleEntry;
use precast_kernels::{Arch, Block, KERNELS, KeyVariant};

use crate::support::program::nvrtc;

/// Dequantization is memory-bound and hides latency in other warps: a multiprocessor must be almost full of threads.
#[test]
fn every_format_compiles_for_every_architecture_without_spills() {
    for (block, x) in Block::ALL.into_iter().flat_map(|block| [(block, "bf16"), (block, "f32")]) {
        compiles(&format!("embedding.fwd{{h=1536,w={block},x={x}}}"), |_| true);
        compiles(&format!("dequant{{w={block},x={x}}}"), |usage| usage.occupancy >= 0.75);
    }
}

/// The narrowest window of a built-in model has 512 positions.
#[test]
fn attention_of_narrow_windows_compiles_without_spills() {
    for (d, window) in [(64, 1), (64, 24), (64, 63), (64, 64), (128, 24), (128, 511), (256, 24)] {
        compiles(&format!("attention.fwd{{d={d},window={window},x=bf16}}"), |_| true);
    }
}

/// Compiles a key for an architecture of every kind. Nothing spills, and `holds` what is asked of its use of a
/// multiprocessor.
fn compiles(key: &str, holds: impl Fn(&Usage) -> bool) {
    let nvrtc = nvrtc();
    let key = KERNELS.parse(key).unwrap();
    for arch in [Arch::Sm89, Arch::Sm90Portable, Arch::Sm90a, Arch::Sm121] {
        for variant in key.kernel().variants(arch) {
            let task = Task { pair: KeyVariant { key: key.clone(), variant }, arch };
            let cubin = task.compile(&nvrtc).unwrap_or_else(|error| panic!("{error}"));
            let usage = Usage::of(&ModuleEntry::compiled(&task.pair, task.arch, &cubin).unwrap(), &KERNELS).unwrap();
            assert_eq!(usage.stack_bytes, 0, "{task}");
            assert!(holds(&usage), "{task}: {} registers", usage.registers);
        }
    }
}
