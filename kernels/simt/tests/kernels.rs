//! Defects planted in what ships: the checker has to see them through everything else a real kernel does. That it has nothing to
//! say of kernels as they are is seen by `cargo xtask simt`, which runs them all.

use precast_kernels::{Arch, Key, Source, Tolerance};
use precast_simt::{CheckFault, check_source};

use crate::SIMT;

/// Returns the report of a kernel after its first `from`, in source or headers, became `to`.
pub fn found(key: &str, from: &str, to: &str) -> String {
    found_on(Arch::Sm121, key, from, to)
}

/// Returns the report of a kernel of Hopper's own, as [`found`] does.
fn found_on_hopper(key: &str, from: &str, to: &str) -> String {
    found_on(Arch::Sm90a, key, from, to)
}

fn found_on(arch: Arch, key: &str, from: &str, to: &str) -> String {
    let key = Key::parse(key).unwrap();
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
    let variant = key.kernel().variants(arch)[0];
    match check_source(&SIMT, source, key, variant, arch, &[1]) {
        Err(CheckFault::Broken { report, .. }) => Some(report.to_string()),
        Err(CheckFault::Mismatch { mismatch, stores, .. }) => Some(format!("{mismatch}{stores}")),
        Err(fault) => panic!("{fault}"),
        Ok(_) => None,
    }
}

#[test]
fn a_tile_that_is_replaced_while_others_read_it_is_a_race() {
    let first = "sync_block();\n        store_tile";
    insta::assert_snapshot!(found("gemm.fwd{bias=true,residual=false,w=f32,x=f32}", first, "store_tile"));
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
    let barrier = "sync_block(); // sums is reused";
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
fn what_an_adapter_adds_to_ends_with_its_rows() {
    let inside = "i < rows && j < columns";
    insta::assert_snapshot!(found("lora.fwd_b{x=bf16}", inside, "i <= rows && j < columns"));
}

#[test]
fn parts_of_a_stack_have_tiles_of_their_own() {
    let fault = found("lora.fwd_b{x=bf16}", "index -= count;", "");
    // Its index is that of no part of its own: where what it finds there leads depends on addresses, which differ from run to run.
    let known = ["access out of bounds: 16 bytes at byte ", "data race: 16 bytes at byte "];
    assert!(known.iter().any(|known| fault.starts_with(known)), "{fault}");
}

/// One rounding too many is within what a GPU's approximate instructions are allowed, and they are exact here.
#[test]
fn a_gate_rounded_too_early_is_not_its_reference() {
    let rounded = "to_float(from_float<KEY_X>(g[j] * sigmoid(g[j]))) * u[j]";
    let message = found("swiglu.fwd{x=bf16}", "g[j] * sigmoid(g[j]) * u[j]", rounded);
    assert!(message.contains("operand `y` differs from the host reference"), "{message}");
}

#[test]
fn elements_that_a_stride_leaves_out_were_never_written() {
    let grid = "uint64_t(gridDim.x) * VARIANT_THREADS";
    for key in ["cast{from=f32,to=bf16}", "fill{first=false}"] {
        let message = found(key, grid, &format!("2 * {grid}"));
        assert!(message.contains("operand `y` was never written at element "), "{message}");
    }
    let message = found("swiglu.fwd{x=bf16}", "segments * VARIANT_THREADS}", "2 * segments * VARIANT_THREADS}");
    assert!(message.contains("operand `y` was never written at element "), "{message}");
}

#[test]
fn a_tile_that_is_passed_on_before_it_is_stored_is_a_race() {
    let pass = "if (threadIdx.x == 0) store_release";
    insta::assert_snapshot!(found("gemm.dgrad{w=bf16,x=bf16}", &format!("sync_block();\n    {pass}"), pass));
}

#[test]
fn a_stage_is_not_freed_before_its_wgmma_is_waited_for() {
    let key = "gemm.fwd{bias=true,residual=false,w=bf16,x=bf16}";
    insta::assert_snapshot!(found_on_hopper(key, "wgmma_wait<1>();", ""));
}

#[test]
fn a_multicast_goes_to_every_block_of_the_cluster() {
    let key = "gemm.swiglu{bias=true,w=bf16,x=bf16}";
    insta::assert_snapshot!(found_on_hopper(key, "(1 << CLUSTER) - 1", "1 << rank"));
}

#[test]
fn a_block_does_not_end_while_others_write_its_shared_memory() {
    let key = "gemm.swiglu{bias=true,w=bf16,x=bf16}";
    insta::assert_snapshot!(found_on_hopper(key, "if (MULTICAST) cluster_sync();", ""));
}

#[test]
fn a_copied_tile_is_fenced_before_wgmma_reads_it() {
    insta::assert_snapshot!(found_on_hopper("attention.fwd{d=64,x=bf16}", "fence_proxy_async();", ""));
}

#[test]
fn scores_are_not_read_before_their_wgmma_is_waited_for() {
    insta::assert_snapshot!(found_on_hopper("attention.bwd{d=64,x=bf16}", "wgmma_wait<1>();", ""));
}

#[test]
fn a_block_that_may_not_run_is_not_sent_to() {
    insta::assert_snapshot!(found_on_hopper("head.distill{reverse=false,x=bf16}", "cluster_sync();", "sync_block();"));
}

#[test]
fn a_warp_does_not_store_where_its_lanes_still_read() {
    let between = "sync_warp(); // skipped chunks do not alternate";
    insta::assert_snapshot!(found_on_hopper(
        "gemm.dgrad{w=bf16,x=bf16}",
        between,
        "// skipped chunks do not alternate"
    ));
}

/// Sums are exact, and each operation after them is rounded apart: `cargo xtask test` holds every variant to the host's bits.
#[test]
fn int8_gemms_are_held_to_the_hosts_bits() {
    let key = Key::parse("gemm.fwd{bias=true,residual=true,w=i8,x=i8}").unwrap();
    let all = |params: &Vec<u8>| key.kernel().operands(params);
    assert!(key.kernel().samples().iter().flat_map(all).all(|it| key.kernel().tolerance(&it) == Tolerance::EXACT));
}

/// Hardly one output in 10,000 shows it, and one is enough.
#[test]
fn a_scale_two_units_off_in_the_last_place_has_other_bits() {
    let (exact, off) = ("mul_rn(x_scale, w_scale)", "mul_rn(x_scale, w_scale) * 1.0000002f");
    let found = found("gemm.fwd{bias=false,residual=false,w=i8,x=i8}", exact, off);
    assert!(found.contains("`y` differs from the host reference"), "{found}");
}

#[test]
fn the_largest_value_of_a_column_is_waited_for() {
    let barrier = "sync_block();\n#pragma unroll\n    for (uint32_t warp";
    let without = "#pragma unroll\n    for (uint32_t warp";
    insta::assert_snapshot!(found("int8.columns{n=896,x=bf16}", barrier, without));
}

#[test]
fn rows_add_their_gradients_of_gamma_one_after_the_other() {
    let key = "rmsnorm.bwd{h=96,out=bf16+i8,residual=false,x=bf16}";
    insta::assert_snapshot!(found(key, "if (turn > 0) sync_block();", ""));
}

/// A model in float64, and a run that computes the two apart, round first.
#[test]
fn what_is_quantized_is_what_is_stored() {
    let keys = [
        "swiglu.fwd{n=272,out=i8,x=bf16}",
        "swiglu.bwd{n=128,out=bf16+i8,x=bf16}",
        "rmsnorm.fwd{h=96,out=bf16+i8,residual=false,x=bf16}",
    ];
    for key in keys {
        let message = found(key, "rounds ? packed[i] : values[i]", "values[i]");
        assert!(message.contains("operand `q` differs"), "{message}");
    }
}
