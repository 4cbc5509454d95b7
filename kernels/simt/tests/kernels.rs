//! Every example of every kernel, as its first variant, on both architectures' own code: equal to the host reference, and
//! nothing for the checker to say. `cargo xtask simt` runs all keys, variants and more seeds. And defects planted in
//! what ships: the checker has to see them through everything else a real kernel does.

use std::path::Path;
use std::sync::LazyLock;

use precast_kernels::{Arch, Key, examples};
use precast_simt::{Fault, Simt, check, check_source};
use rayon::prelude::*;

static SIMT: LazyLock<Simt> = LazyLock::new(|| {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    Simt::new(&directory).unwrap_or_else(|error| panic!("{error}"))
});

#[test]
fn kernels_are_their_references_and_break_no_rule() {
    // The architectures' sources are the same today: half of the keys on each.
    let faults: Vec<String> = examples()
        .par_iter()
        .enumerate()
        .filter_map(|(index, key)| {
            let arch = [Arch::Sm89, Arch::Sm121][index % 2];
            let variant = key.kernel().variants(arch)[0];
            check(&SIMT, key, variant, arch, &[1]).err().map(|fault| fault.to_string())
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is found where `from`, the first time it stands in a kernel's source or headers, is `to`.
fn found(key: &str, from: &str, to: &str) -> String {
    let key = Key::parse(key).unwrap();
    let variant = key.kernel().variants(Arch::Sm121)[0];
    let mut source = key.kernel().source(variant);
    let change = |text: &'static str| -> &'static str {
        let changed = text.replacen(from, to, 1);
        if changed == text { text } else { changed.leak() }
    };
    let headers: Vec<_> = source.headers.iter().map(|(name, text)| (*name, change(text))).collect();
    assert!(source.text.contains(from) || headers.iter().any(|(_, text)| text.contains(to)), "{from} is not there");
    (source.text, source.headers) = (change(source.text), headers.leak());
    match check_source(&SIMT, &source, &key, variant, Arch::Sm121, &[1]) {
        Err(Fault::Broken { report, .. }) => report.to_string(),
        Err(Fault::Mismatch { mismatch, .. }) => mismatch.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tile_that_is_replaced_while_others_read_it_is_a_race() {
    let first = "sync_block();\n        place";
    insta::assert_snapshot!(found("gemm.fwd{bias=true,residual=false,w=f32,x=f32}", first, "place"));
}

#[test]
fn a_tile_that_has_not_arrived_is_not_multiplied() {
    insta::assert_snapshot!(found("attention.fwd{d=64,x=bf16}", "cp_async_wait<0>();", ""));
}

#[test]
fn a_stage_that_others_still_read_is_not_overwritten() {
    let barrier = "sync_block(); // this stage is there, and the other has been read";
    insta::assert_snapshot!(found("attention.bwd{d=64,x=bf16}", barrier, "sync_warp();"));
}

#[test]
fn sums_that_are_used_again_while_others_add_them_are_a_race() {
    let barrier = "sync_block(); // sums are used again";
    insta::assert_snapshot!(found("column_sum.partial{x=bf16}", barrier, ""));
    insta::assert_snapshot!(found("embedding.bwd{h=2085,x=bf16}", barrier, ""));
}

#[test]
fn a_sum_that_starts_from_nothing_is_not_its_reference() {
    insta::assert_snapshot!(found("column_sum.partial{x=f32}", "float sum[width] = {};", "float sum[width];"));
}

#[test]
fn a_row_past_the_end_is_out_of_bounds() {
    insta::assert_snapshot!(found("embedding.fwd{h=33,w=bf16,x=bf16}", "token >= p.tokens", "token > p.tokens"));
}

#[test]
fn a_tile_that_is_passed_on_before_it_is_stored_is_a_race() {
    let pass = "if (threadIdx.x == 0) store_release";
    insta::assert_snapshot!(found("gemm.dgrad{w=bf16,x=bf16}", &format!("sync_block();\n    {pass}"), pass));
}
