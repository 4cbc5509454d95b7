//! The checker: it finds what is planted, in small kernels and in what ships, and counts what the hardware counts.

use std::path::Path;
use std::sync::LazyLock;

use precast_simt::Simt;
// `softcap` is a folder of `kernels/src`, as CONTRIBUTING.md describes it.
use precast_core::{
    Arch, Batch, Build, Content, Dtype, Geometry, Kernel, Operand, Reference, Source, Threads, host, key, operand,
    source,
};

mod abi;
mod clusters;
mod counters;
mod decode;
mod experts;
mod hopper;
mod kernels;
mod masked;
mod mistakes;
mod plain;
mod planted;
mod program;
mod rows;
mod sequences;
mod skipped;
mod softcap;
mod wrong;

/// A test a line: its name, and what it compares with the snapshot of that name.
macro_rules! snapshots {
    ($($test:ident: $found:expr;)*) => {
        $(#[test]
        fn $test() {
            insta::assert_snapshot!($found);
        })*
    };
}
use snapshots;

/// The machine, compiled once for all tests.
static SIMT: LazyLock<Simt> = LazyLock::new(|| {
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Simt::new(&scratch.join("checker"), &scratch.join("kernels")).unwrap_or_else(|error| panic!("{error}"))
});
