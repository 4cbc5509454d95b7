//! Kernels that only Hopper has: every variant that no other architecture has, on all samples.

use std::path::Path;
use std::sync::LazyLock;

use precast_kernels::{Arch, Key, Variant};
use precast_simt::{Simt, check};
use rayon::prelude::*;

static SIMT: LazyLock<Simt> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hopper");
    Simt::new(&directory).unwrap_or_else(|error| panic!("{error}"))
});

const KEYS: [&str; 11] = [
    "attention.bwd{d=64,x=bf16}",
    "attention.bwd{d=128,x=bf16}",
    "attention.fwd{d=64,x=bf16}",
    "attention.fwd{d=128,x=bf16}",
    "gemm.dgrad{w=bf16,x=bf16}",
    "gemm.fwd{bias=false,residual=true,w=bf16,x=bf16}",
    "gemm.fwd{bias=true,residual=false,w=bf16,x=bf16}",
    "gemm.swiglu{bias=true,w=bf16,x=bf16}",
    "gemm.wgrad{x=bf16}",
    "head.distill{x=bf16}",
    "head.distill{x=f32}",
];

/// Those of a key that no other architecture has.
fn own_variants(key: &Key) -> Vec<Variant> {
    let variants = |arch| key.kernel().variants(arch);
    variants(Arch::Sm90a).iter().filter(|variant| !variants(Arch::Sm121).contains(variant)).copied().collect()
}

#[test]
fn kernels_are_their_references_and_break_no_rule() {
    let keys = KEYS.map(|text| Key::parse(text).unwrap());
    let only = std::env::var("ONLY").unwrap_or_default();
    let built = keys.iter().flat_map(|key| own_variants(key).into_iter().map(move |variant| (key, variant)));
    let built: Vec<_> = built.filter(|(k, v)| format!("{k}[{v}]").contains(&only)).collect();
    assert!(!built.is_empty());
    let faults: Vec<String> = built
        .into_par_iter()
        .filter_map(|(key, variant)| {
            let started = std::time::Instant::now();
            let result = check(&SIMT, key, variant, Arch::Sm90a, &[1]);
            eprintln!("{key}[{variant}] {:?} {:.1?}", result.as_ref().map_err(|e| e.to_string()), started.elapsed());
            result.err().map(|fault| fault.to_string())
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
