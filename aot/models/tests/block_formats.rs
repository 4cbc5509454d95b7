//! Compiles the kernels that read block formats for every architecture: built-in models need only a few.

use precast_aot::budget::Usage;
use precast_aot::compile::Task;
use precast_fatbins::ModuleEntry;
use precast_kernels::{Arch, Block, KERNELS, KeyVariant};

use crate::support::program::nvrtc;

/// Dequantization is memory-bound and hides latency in other warps: a multiprocessor must be almost full of threads.
#[test]
fn every_format_compiles_for_every_architecture_without_spills() {
    let nvrtc = nvrtc();
    for (block, x) in Block::ALL.into_iter().flat_map(|block| [(block, "bf16"), (block, "f32")]) {
        for text in [format!("dequant{{w={block},x={x}}}"), format!("embedding.fwd{{h=1536,w={block},x={x}}}")] {
            let key = KERNELS.parse(&text).unwrap();
            for arch in [Arch::Sm89, Arch::Sm90Portable, Arch::Sm90a, Arch::Sm121] {
                for variant in key.kernel().variants(arch) {
                    let task = Task { pair: KeyVariant { key: key.clone(), variant }, arch };
                    let cubin = task.compile(&nvrtc).unwrap_or_else(|error| panic!("{error}"));
                    let usage =
                        Usage::of(&ModuleEntry::compiled(&task.pair, task.arch, &cubin).unwrap(), &KERNELS).unwrap();
                    assert_eq!(usage.stack_bytes, 0, "{task}");
                    let full = text.starts_with("embedding") || usage.occupancy >= 0.75;
                    assert!(full, "{task}: {} registers", usage.registers);
                }
            }
        }
    }
}
