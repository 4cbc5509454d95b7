//! Mistakes that people make in a kernel, each caught, by what, and with which message. Most are planted in the kernel
//! of CONTRIBUTING.md's page; others in `planted/staged.cu`, which is the same with barriers, in SwiGLU and in RMSNorm.
//! Mistakes in Rust alone are caught by `cargo test -p precast-kernels`: `cargo xtask ci` plants it
//! (`xtask/src/ci/page.rs`).
//!
//! Nobody finds what happens from 2^32 elements on, such as an index of 32 bits: no sample has as many.

use precast_kernels::{Arch, Dtype, Key, Source};

use crate::kernels::{changed, found, found_in};
use crate::softcap::SoftcapFwd;
use crate::wrong::{LONG_OUTPUT, ONE_TOKEN, WIDE_OUTPUT, Wrong};

/// Returns what is said where `from` is `to` in the page's kernel.
fn softcap(x: Dtype, from: &str, to: &str) -> String {
    of_softcap(x, "softcap/fwd.cu", include_str!("softcap/fwd.cu"), from, to)
}

/// Returns what is said of the kernel with barriers.
fn staged(from: &str, to: &str) -> String {
    of_softcap(Dtype::F32, "softcap/staged.cu", include_str!("planted/staged.cu"), from, to)
}

fn of_softcap(x: Dtype, path: &'static str, text: &'static str, from: &str, to: &str) -> String {
    let source = Source {
        path,
        text,
        headers: &[("softcap.h", include_str!("softcap/softcap.h"))],
        common: &precast_core::source::COMMON,
    };
    found_in(Arch::Sm121, &Key::new(SoftcapFwd { x }), &changed(source, from, to)).expect("a fault")
}

#[test]
fn without_mistakes_they_are_their_reference() {
    for x in [Dtype::Bf16, Dtype::F32] {
        let key = Key::new(SoftcapFwd { x });
        let page = key.kernel().source(key.kernel().variants(Arch::Sm121)[0]);
        let staged = Source { path: "softcap/staged.cu", text: include_str!("planted/staged.cu"), ..page };
        assert_eq!([page, staged].map(|source| found_in(Arch::Sm121, &key, &source)), [None, None], "{key}");
    }
}

/// A mistake a line: what is planted, and parts of what is said of it.
macro_rules! mistakes {
    ($($test:ident: $plant:expr => $($part:literal),+;)*) => {
        $(#[test]
        fn $test() {
            let message = $plant;
            println!("{message}");
            for part in [$($part),+] {
                assert!(message.contains(part), "`{part}` is not said:\n{message}");
            }
        })*
    };
}

const TAIL: &str = "i < n; i += stride) y[i]";
const GRID: &str = "uint64_t(gridDim.x) * VARIANT_THREADS";
const SCALE: &str = "mul_rn(x_scale, w_scale)";
const ROUNDS: &str = "rounds ? packed[i] : values[i]";
const GATE: &str = "g[j] * gate_sigmoid(g[j]) * u[j]";
const POST_NORM: &str = "post_norm.fwd{h=3840,next=true,x=bf16}";
const NORM: &str = "rmsnorm.fwd{h=3584,residual=true,x=bf16}";

mistakes! {
    // Elements: too many, too few, twice, and where vectors do not begin.
    a_tail_too_long: softcap(Dtype::Bf16, TAIL, "i <= n; i += stride) y[i]") =>
        "access out of bounds: 2 bytes at byte 2 of operand `x` (2 bytes)", "thread (1, 0, 0): read at \
        src/softcap/fwd.cu:21";
    vectors_rounded_up: softcap(Dtype::Bf16, "i < n / 4; i", "i < (n + 3) / 4; i") =>
        "access out of bounds: 8 bytes at byte 0 of operand `x` (2 bytes)", "from src/softcap/fwd.cu:16";
    a_tail_too_short: softcap(Dtype::Bf16, "n / 4 * 4 + thread", "n / 4 * 4 + 1 + thread") =>
        "`y` was never written at element 0 of 1";
    a_stride_too_long: softcap(Dtype::Bf16, "uint64_t(gridDim.x) *", "2 * uint64_t(gridDim.x) *") =>
        "`y` was never written at element ", "from src/softcap/fwd.cu:19";
    a_cast_whose_stride_is_too_long: found("cast{from=f32,to=bf16}", GRID, "2 * uint64_t(gridDim.x) * \
        VARIANT_THREADS") =>
        "operand `y` was never written at element ";
    a_fill_whose_stride_is_too_long: found("fill{first=false}", GRID, "2 * uint64_t(gridDim.x) * VARIANT_THREADS") =>
        "operand `y` was never written at element ";
    a_swiglu_whose_stride_is_too_long: found("swiglu.fwd{x=bf16}", "segments * VARIANT_THREADS}", "2 * segments * \
        VARIANT_THREADS}") =>
        "operand `y` was never written at element ";
    elements_of_one_token: softcap(Dtype::Bf16, "uint64_t(p.tokens) * p.n", "p.n") => "`y` was never written at \
        element 1031";
    a_grid_walked_by_every_block: softcap(Dtype::Bf16, "uint64_t(blockIdx.x) * VARIANT_THREADS + \
        threadIdx.x", "threadIdx.x") =>
        "data race: 8 bytes at byte", "of operand `y`", "block (3, 0, 0)", "block (2, 0, 0)", "write at \
        device.cuh", "src/softcap/fwd.cu:19";
    a_misaligned_vector: softcap(Dtype::Bf16, "load4(x + 4 * i)", "load4(x + 4 * i + 1)") =>
        "misaligned access: 8 bytes at byte ", "of operand `x`", "src/softcap/fwd.cu:16";

    // Barriers.
    a_barrier_missing_behind_the_reads: staged("sync_block(); // the tile has been read", "") =>
        "data race: 4 bytes at byte", "of shared `tile`", "write at src/softcap/staged.cu:13", "read at \
        src/softcap/staged.cu:15";
    a_barrier_missing_before_the_reads: staged("sync_block(); // the tile is there", "") =>
        "data race: 4 bytes at byte", "of shared `tile`", "read at src/softcap/staged.cu:15", "write at \
        src/softcap/staged.cu:13";
    a_shared_word_that_nobody_writes: staged("tile[threadIdx.x] = first", "if (threadIdx.x > 0) tile[threadIdx.x] = \
        first") =>
        "read of uninitialized memory: 4 bytes at byte 0 of shared `tile`", "read at src/softcap/staged.cu:15";
    a_barrier_that_some_threads_reach: staged("sync_block(); // the tile is there", "if (first + threadIdx.x < n) \
        sync_block();") =>
        "data race: 4 bytes at byte", "of shared `tile`", "write at src/softcap/staged.cu:13", "read at \
        src/softcap/staged.cu:15";
    sums_of_warps_read_before_they_are_there: found(NORM, "scratch[warp] = \
        value;\n        sync_block();", "scratch[warp] = value;") =>
        "data race: 4 bytes at byte", "of shared `scratch`", "read at kernels/src/rmsnorm/row.cuh", "write at \
        kernels/src/rmsnorm/row.cuh";
    sums_of_warps_of_two_norms: found(POST_NORM, "scratch[1]", "scratch[0]") =>
        "data race: 4 bytes at byte", "of shared `scratch`", "rmsnorm/row.cuh";
    a_sum_of_a_warp_that_nobody_writes: found(NORM, "if (threadIdx.x % WARP == 0) scratch", "if (threadIdx.x == 0) \
        scratch") =>
        "read of uninitialized memory: 4 bytes at byte 4 of shared `scratch`";
    a_barrier_behind_the_end_of_some_threads: found(NORM, "const uint64_t row = ", "if (threadIdx.x >= 96) \
        return;\n    const uint64_t row = ") =>
        "divergent barrier", "waits at", "ended";
    sums_of_warps_used_again: found(NORM, "row_sum(square, scratch)", "row_sum(square + 0.0f * row_sum(square, \
        scratch), scratch)") =>
        "data race: 4 bytes at byte", "of shared `scratch`", "rmsnorm/row.cuh";

    // Values.
    a_large_cap_ignored: softcap(Dtype::Bf16, "return cap", "return cap > 40.0f ? x : cap") =>
        "operand `y` differs from the host reference";
    a_cap_ignored_for_large_numbers: softcap(Dtype::Bf16, "return cap", "return fabsf(x) > 4.0f * cap ? x : cap") =>
        "operand `y` differs from the host reference";
    a_very_large_cap_ignored: softcap(Dtype::F32, "return cap", "return cap > 100.0f ? x : cap") =>
        "operand `y` differs from the host reference";
    a_tanh_rounded_to_bf16: softcap(Dtype::Bf16, "cap * tanhf(x / cap)", "cap * round_to<bf16>(tanhf(x / cap))") =>
        "operand `y` differs from the host reference";
    a_gate_rounded_to_bf16: found("swiglu.fwd{x=bf16}", GATE, "round_to<bf16>(g[j] * gate_sigmoid(g[j])) * u[j]") =>
        "operand `y` differs from the host reference";
    a_norm_rounded_to_bf16: found(NORM, "(x[j][i] * rstd)", "round_to<bf16>(x[j][i] * \
        rstd)") =>
        "operand `y` differs from the host reference";
    a_normalized_branch_added_before_it_is_rounded: found(POST_NORM, "x[j][i] + normed[i]", "x[j][i] + values[i]") =>
        "operand `sum` differs from the host reference";
    squares_rounded_to_bf16: found(NORM, "square += x[j][i] * x[j][i]", "square += round_to<bf16>(x[j][i] * \
        x[j][i])") =>
        "operand `rstd` differs from the host reference";
    an_eps_outside_of_the_root: found(NORM, "/ sqrtf(row_sum(square, scratch) / KEY_H + p.eps)", "/ \
        (sqrtf(row_sum(square, scratch) / KEY_H) + p.eps)") =>
        "operand `y` differs from the host reference";

    // Hardly one output in 10,000 shows it, and one is enough.
    a_scale_two_units_off_in_the_last_place: found("gemm.fwd{bias=false,residual=false,w=i8,x=i8}", SCALE,
        "mul_rn(x_scale, w_scale) * 1.0000002f") =>
        "`y` differs from the host reference";
    // A model in float64, and a run that computes the two apart, round first.
    a_swiglu_quantized_before_it_is_rounded: found("swiglu.fwd{n=272,out=i8,x=bf16}", ROUNDS, "values[i]")
        => "operand `q` differs";
    a_gradient_quantized_before_it_is_rounded: found("swiglu.bwd{n=128,out=bf16+i8,x=bf16}", ROUNDS, "values[i]")
        => "operand `q` differs";
    a_norm_quantized_before_it_is_rounded: found("rmsnorm.fwd{h=96,out=bf16+i8,residual=false,x=bf16}", ROUNDS,
        "values[i]") =>
        "operand `q` differs";

    // Rows.
    a_row_behind_the_last: found("rmsnorm.fwd{h=96,residual=false,x=bf16}", "token < p.tokens", "token <= p.tokens") =>
        "access out of bounds: 16 bytes at byte 320 of operand `x` (192 bytes)", "rmsnorm/fwd.cuh";
    columns_behind_the_row: found("rmsnorm.fwd{h=2085,residual=true,x=bf16}", "(column_of(j) < COLUMNS)", "true") =>
        "access out of bounds", "rmsnorm/";
    a_token_too_many: found("swiglu.fwd{x=bf16}", "tokens - 1 - token", "tokens - token") =>
        "access out of bounds", "of operand `gate_up`", "swiglu/fwd.cu";
    an_up_beside_itself: found("swiglu.fwd{x=f32}", "up = gate + p.n", "up = gate + p.n - 1") => "`y` differs from \
        the host reference";
    no_way_for_rows_that_are_not_aligned: found("swiglu.fwd{x=bf16}", "p.n % WIDTH_OF(KEY_X) == 0", "true") =>
        "`y` was never written at element 0 of 1";

    // Operands.
    an_output_declared_too_long: declared::<LONG_OUTPUT>() =>
        "`y` is written at element 1 of 5 neither by the launch nor by the host reference: it is declared too long";
    operands_declared_for_one_token: declared::<ONE_TOKEN>() =>
        "access out of bounds: 8 bytes at byte ", "of operand `x` (2062 bytes)", "read at device.cuh", "from \
        src/softcap/fwd.cu:16";
    an_output_declared_as_f32: declared::<WIDE_OUTPUT>() =>
        "operand `y` differs from the host reference", "= inf (allowed 2.0e-6)";
}

/// Returns what is said where the page's kernel declares its operands so.
fn declared<const WHAT: u8>() -> String {
    let key = Key::new(Wrong::<WHAT>);
    let kernel = key.kernel();
    found_in(Arch::Sm121, &key, &kernel.source(kernel.variants(Arch::Sm121)[0])).expect("a fault")
}
