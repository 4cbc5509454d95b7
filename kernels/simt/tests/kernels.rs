//! Defects planted in what ships: the checker has to see them through everything else a real kernel does. That it has
//! nothing to say of kernels as they are is seen by `cargo xtask simt`, which runs them all.

use precast_kernels::{Arch, KERNELS, Key, Source, Tolerance};
use precast_simt::{CheckFault, check_source};

use crate::{SIMT, snapshots};

/// Returns the report of a kernel after its first `from`, in source or headers, became `to`.
pub fn found(key: &str, from: &str, to: &str) -> String {
    found_on(Arch::Sm121, key, from, to)
}

/// Returns the report of a kernel of Hopper's own, as [`found`] does.
fn found_on_hopper(key: &str, from: &str, to: &str) -> String {
    found_on(Arch::Sm90a, key, from, to)
}

fn found_on(arch: Arch, key: &str, from: &str, to: &str) -> String {
    let key = KERNELS.parse(key).unwrap();
    let source = key.kernel().source(key.kernel().variants(arch)[0]);
    found_in(arch, &key, &changed(source, from, to)).expect("a fault")
}

/// A source with `to` in place of `from`, the first time that it stands in the text and in each header.
pub fn changed(mut source: Source, from: &str, to: &str) -> Source {
    let change = |text: &'static str| -> &'static str {
        let changed = text.replacen(from, to, 1);
        if changed == text { text } else { changed.leak() }
    };
    let headers: Vec<_> = source.headers.iter().map(|(name, text)| (*name, change(text))).collect();
    assert!(source.text.contains(from) || headers.iter().any(|(_, text)| text.contains(to)), "{from} is not there");
    (source.text, source.headers) = (change(source.text), headers.leak());
    source
}

/// Returns what is said of a key's first variant, built of a source; nothing if it is right.
pub fn found_in(arch: Arch, key: &Key, source: &Source) -> Option<String> {
    let pair = key.built(arch).next().unwrap();
    match check_source(&SIMT, source, &pair, arch, &[1]) {
        Err(CheckFault::Broken { report, .. }) => Some(report.to_string()),
        Err(CheckFault::Mismatch { mismatch, stores, .. }) => Some(format!("{mismatch}{stores}")),
        Err(fault) => panic!("{fault}"),
        Ok(_) => None,
    }
}

snapshots! {
    a_tile_that_is_replaced_while_others_read_it_is_a_race:
        found("gemm.fwd{bias=true,residual=false,w=f32,x=f32}", "sync_block();\n        store_tile", "store_tile");
    a_tile_that_has_not_arrived_is_not_multiplied: found("attention.fwd{d=64,x=bf16}", "cp_async_wait<0>();", "");
    a_stage_that_others_still_read_is_not_overwritten:
        found("attention.bwd{d=64,x=bf16}", "sync_block(); // this stage is there", "sync_warp(); //");
    sums_that_are_used_again_while_others_add_them_are_a_race:
        found("column_sum.partial{x=bf16}", "sync_block(); // sums is reused", "");
    rows_that_are_used_again_while_others_add_them_are_a_race:
        found("embedding.bwd{h=2085,x=bf16}", "sync_block(); // sums is reused", "");
    a_sum_that_starts_from_nothing_is_not_its_reference:
        found("column_sum.partial{x=f32}", "float sum[width] = {};", "float sum[width];");
    a_row_past_the_end_is_out_of_bounds:
        found("embedding.fwd{h=33,w=bf16,x=bf16}", "token >= p.tokens", "token > p.tokens");
    what_an_adapter_adds_to_ends_with_its_rows:
        found("lora.fwd_b{x=bf16}", "i < rows && j < columns", "i <= rows && j < columns");
    a_tile_that_is_passed_on_before_it_is_stored_is_a_race:
        found("gemm.dgrad{w=bf16,x=bf16}", &format!("sync_block();\n    {RELEASE}"), RELEASE);
    the_largest_value_of_a_column_is_waited_for:
        found("int8.columns{n=896,x=bf16}", &format!("sync_block();\n{LARGEST}"), LARGEST);
    gradients_of_gamma_are_added_up_once_all_rows_are_through:
        found("rmsnorm.bwd{h=96,out=bf16+i8,residual=false,x=bf16}", &format!("sync_block();\n        {FOURS}"), FOURS);

    // Kernels of Hopper's own.
    a_stage_is_not_freed_before_its_wgmma_is_waited_for:
        found_on_hopper("gemm.fwd{bias=true,residual=false,w=bf16,x=bf16}", "wgmma_wait<1>();", "");
    a_multicast_goes_to_every_block_of_the_cluster: found_on_hopper(SWIGLU, "(1 << CLUSTER) - 1", "1 << rank");
    a_block_does_not_end_while_others_write_its_shared_memory:
        found_on_hopper(SWIGLU, "if (MULTICAST) cluster_sync();", "");
    a_copied_tile_is_fenced_before_wgmma_reads_it:
        found_on_hopper("attention.fwd{d=64,x=bf16}", "fence_proxy_async();", "");
    scores_are_not_read_before_their_wgmma_is_waited_for:
        found_on_hopper("attention.bwd{d=64,x=bf16}", "wgmma_wait<1>();", "");
    a_block_that_may_not_run_is_not_sent_to:
        found_on_hopper("head.distill{reverse=false,x=bf16}", "cluster_sync();", "sync_block();");
    a_warp_does_not_store_where_its_lanes_still_read:
        found_on_hopper("gemm.dgrad{w=bf16,x=bf16}", SKIPPED, "} if constexpr");
    a_tile_is_stored_before_the_next_one_is_rounded:
        found_on_hopper(RESIDUAL, "store(c);\n                    if", "if (c > 0) store(c);\n                    if");
    neighbors_of_other_columns_share_nothing:
        found_on_hopper("gemm.wgrad{x=bf16}", "work.shares = rasterize", "work.shares = first < tiles || rasterize");
}

const RELEASE: &str = "if (threadIdx.x == 0) store_release";
const LARGEST: &str = "#pragma unroll\n    for (uint32_t warp";
const FOURS: &str = "for (uint32_t four";
const SKIPPED: &str = "sync_warp();\n            }\n            if constexpr";
const RESIDUAL: &str = "gemm.fwd{bias=false,residual=true,w=bf16,x=bf16}";
const SWIGLU: &str = "gemm.swiglu{bias=true,w=bf16,x=bf16}";

#[test]
fn parts_of_a_stack_have_tiles_of_their_own() {
    let fault = found("lora.fwd_b{x=bf16}", "index -= count;", "");
    // Its index is that of no part of its own: where what it finds there leads depends on addresses, which differ from
    // run to run.
    let known = ["access out of bounds: 16 bytes at byte ", "data race: 16 bytes at byte "];
    assert!(known.iter().any(|known| fault.starts_with(known)), "{fault}");
}

/// Sums are exact, and each operation after them is rounded apart: `cargo xtask test` holds every variant to the host's
/// bits.
#[test]
fn int8_gemms_are_held_to_the_hosts_bits() {
    let key = KERNELS.parse("gemm.fwd{bias=true,residual=true,w=i8,x=i8}").unwrap();
    let all = |params: &Vec<u8>| key.kernel().operands(params);
    assert!(key.kernel().samples().iter().flat_map(all).all(|it| key.kernel().tolerance(&it) == Tolerance::EXACT));
}
