//! The references of what is in int8 against the formulas in f64: a rotation is an orthonormal matrix, a scale is of
//! the largest value, and GEMMs are those of the matrices that were quantized.

use precast_kernels::abi::{
    gemm_fwd_params, gemm_swiglu_params, int8_columns_params, int8_quantize_params, post_norm_fwd_params,
    rmsnorm_bwd_params, rmsnorm_dgrad_params, rmsnorm_fwd_params, swiglu_bwd_params, swiglu_fwd_params,
};
use precast_kernels::int8::rotation;

use crate::formulas::calculus::transposed;
use crate::formulas::launch::Launch;
use crate::formulas::swiglu::{activation, gated};

/// The row times the orthonormal Hadamard matrix of each block of r, by its definition: element (i, j) has the sign of
/// the number of ones in i and j.
fn rotated(row: &[f64], r: usize) -> Vec<f64> {
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let of_block = |block: &[f64]| -> Vec<f64> {
        let column = |j| (0..r).map(|i| block[i] * sign(i, j)).sum::<f64>() / (r as f64).sqrt();
        (0..r).map(column).collect()
    };
    row.chunks(r).flat_map(of_block).collect()
}

fn largest(row: &[f64]) -> f64 {
    row.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}

/// Asserts that values and scale are a rotated row, to half a step and f32's rounding.
fn is_quantized(row: &[f64], q: &[f64], scale: f64, what: &str) {
    let row = rotated(row, rotation(row.len() as u32).unwrap() as usize);
    let step = largest(&row) / 127.0;
    if largest(&row) < 1e-31 {
        assert!(scale == 0.0 && q.iter().all(|q| *q == 0.0), "{what}: a row of zeros has a scale of {scale}");
        return;
    }
    assert!((scale / step - 1.0).abs() < 1e-5, "{what}: a scale of {scale:e} for steps of {step:e}");
    assert_eq!(largest(q), 127.0, "{what}");
    for (i, (q, value)) in q.iter().zip(&row).enumerate() {
        assert!((q * step - value).abs() <= 0.5001 * step, "{what}: value {i} is {q} for {}", value / step);
    }
}

/// Asserts that a launch has quantized these rows; rows of zeros, outliers and the largest numbers among them.
fn are_quantized(launch: &Launch, rows: &[f64], what: &str) {
    let (q, scale) = (launch.after("q"), launch.after("scale"));
    let k = q.len() / scale.len();
    for (row, scale) in scale.iter().enumerate() {
        let part = row * k..(row + 1) * k;
        is_quantized(&rows[part.clone()], &q[part], *scale, &format!("{what}, row {row}"));
    }
    assert!(scale.contains(&0.0) && scale.iter().any(|scale| *scale > 1e30), "{scale:?}");
}

#[test]
fn values_are_rotated_rows_in_steps_of_their_scale() {
    for (k, x) in [(16, "bf16"), (48, "f32"), (96, "bf16"), (320, "f32"), (1536, "bf16")] {
        let key = format!("int8.quantize{{k={k},x={x}}}");
        let launch = Launch::of(&key, int8_quantize_params { rows: 40, ..Default::default() }, 3);
        are_quantized(&launch, &launch.before("x"), &key);
    }
}

#[test]
fn columns_are_rows_of_the_transpose() {
    for (n, x) in [(16, "bf16"), (96, "bf16"), (1536, "f32")] {
        let key = format!("int8.columns{{n={n},x={x}}}");
        let launch = Launch::of(&key, int8_columns_params { columns: 40, ..Default::default() }, 3);
        are_quantized(&launch, &transposed(&launch.before("x"), 40), &key);
    }
}

#[test]
fn what_is_not_finite_has_no_scale_that_is_a_number() {
    let params = int8_quantize_params { rows: 3, ..Default::default() };
    for poison in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut launch = Launch::of("int8.quantize{k=64,x=f32}", params, 5);
        launch.set("x", &std::array::from_fn::<f64, 192, _>(|i| if i == 70 { poison } else { 1.0 }));
        let scale = launch.after("scale");
        assert!(scale[1].is_nan() && scale[0].is_finite() && scale[2].is_finite(), "{poison}: {scale:?}");
        assert!(launch.after("q")[64..128].iter().all(|q| *q == 0.0));
    }
}

#[test]
fn a_norm_gives_the_rotated_rows_of_rmsnorm() {
    let (h, tokens, eps) = (192usize, 7, 1e-2);
    let params = rmsnorm_fwd_params { tokens: tokens as u32, eps, ..Default::default() };
    let launch = Launch::of(&format!("rmsnorm.fwd{{h={h},out=i8,residual=true,x=bf16}}"), params, 4);
    let [x, delta, gamma] = ["x", "delta", "gamma"].map(|name| launch.before(name));
    let [sum, q, scale] = ["sum", "q", "scale"].map(|name| launch.after(name));
    for (token, scale) in scale.iter().enumerate() {
        let at = token * h..(token + 1) * h;
        for i in at.clone() {
            assert!((sum[i] - (x[i] + delta[i])).abs() <= sum[i].abs() / 256.0, "sum {i}");
        }
        let rms = (sum[at.clone()].iter().map(|x| x * x).sum::<f64>() / h as f64 + f64::from(eps)).sqrt();
        let y: Vec<f64> = sum[at.clone()].iter().zip(&gamma).map(|(x, gamma)| gamma * x / rms).collect();
        is_quantized(&y, &q[at], *scale, &format!("token {token}"));
    }
}

/// Asserts that a kernel writes, of the same inputs, the bits of another one, and what `int8.quantize` makes of an
/// output of that, of rows of k.
fn is_the_pair<P: bytemuck::Pod>(key: &str, other: &str, params: P, output: &str, k: u32) {
    let fused = Launch::of(key, params, 9);
    let mut other = Launch::of(other, params, 1);
    for (operand, bytes) in
        other.case.operands.iter().zip(&mut other.case.before).filter(|(one, _)| !one.access.writes())
    {
        bytes.clone_from(&fused.case.before[fused.find(operand.name).expect("an operand of both")]);
    }
    let quantize = int8_quantize_params { rows: 7, ..Default::default() };
    let mut quantized = Launch::of(&format!("int8.quantize{{k={k},x=bf16}}"), quantize, 1);
    quantized.set("x", &other.after(output));
    for (operand, written) in fused.case.operands.iter().zip(fused.outputs()).filter(|(one, _)| one.access.writes()) {
        let of = |launch: &Launch| launch.find(operand.name).map(|index| launch.outputs()[index].to_vec());
        assert!(written[..] == of(&quantized).or(of(&other)).expect("an output of one"), "{key}: {}", operand.name);
    }
}

#[test]
fn fused_kernels_write_the_bits_of_the_pairs_in_their_place() {
    let (tokens, eps) = (7, 1e-2);
    for residual in [false, true] {
        let norm = |op: &str, out: &str| format!("{op}{{h=192,{out}residual={residual},x=bf16}}");
        let pair = |op: &str| (norm(op, "out=bf16+i8,"), norm(op, ""));
        let (fused, plain) = pair("rmsnorm.fwd");
        is_the_pair(&fused, &plain, rmsnorm_fwd_params { tokens, eps, ..Default::default() }, "y", 192);
        let (fused, plain) = pair("rmsnorm.bwd");
        is_the_pair(&fused, &plain, rmsnorm_bwd_params { tokens, rows: 4, ..Default::default() }, "dx", 192);
        let (fused, plain) = pair("rmsnorm.dgrad");
        is_the_pair(&fused, &plain, rmsnorm_dgrad_params { tokens, ..Default::default() }, "dx", 192);
    }
    let [fused, plain] = ["out=bf16+i8,", ""].map(|out| format!("post_norm.fwd{{h=192,next=true,{out}x=bf16}}"));
    is_the_pair(&fused, &plain, post_norm_fwd_params { tokens, eps, ..Default::default() }, "y", 192);
    for gate in ["", "gate=gelu_tanh,"] {
        let plain = |op: &str| format!("{op}{{{gate}x=bf16}}");
        for out in ["i8", "bf16+i8"] {
            let params = swiglu_fwd_params { tokens, n: 96, ..Default::default() };
            let fused = format!("swiglu.fwd{{{gate}n=96,out={out},x=bf16}}");
            is_the_pair(&fused, &plain("swiglu.fwd"), params, "y", 96);
        }
        let params = swiglu_bwd_params { tokens, n: 384, ..Default::default() };
        let fused = format!("swiglu.bwd{{{gate}n=384,out=bf16+i8,x=bf16}}");
        is_the_pair(&fused, &plain("swiglu.bwd"), params, "dgate_up", 768);
    }
}

/// x w^T of dequantized matrices, with a bias.
fn gemm(launch: &Launch, [m, n, k]: [usize; 3], has_bias: bool) -> Vec<f64> {
    let [x, w, sx, sw] = ["x", "w", "x_scale", "w_scale"].map(|name| launch.before(name));
    let bias = if has_bias { launch.before("bias") } else { vec![0.0; n] };
    let element = |i: usize, j: usize| {
        let sum: f64 = (0..k).map(|r| x[i * k + r] * sx[i] * w[j * k + r] * sw[j]).sum();
        sum + bias[j]
    };
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect()
}

/// Asserts that outputs are as far from their formula as so many roundings to bf16 take them.
fn close(found: &[f64], expected: &[f64], roundings: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let gate = roundings * 1.01 * (expected.abs() / 256.0) + 1e-5;
        assert!((found - expected).abs() <= gate, "element {i}: {found} is not {expected}");
    }
}

#[test]
fn gemms_are_those_of_the_matrices_that_were_quantized() {
    let (m, n, k) = (5, 24, 2064);
    let params = gemm_fwd_params { m: m as u32, n: n as u32, k: k as u32, ..Default::default() };
    for (bias, residual) in [(false, false), (true, true)] {
        let launch = Launch::of(&format!("gemm.fwd{{bias={bias},residual={residual},w=i8,x=i8}}"), params, 6);
        let mut y = gemm(&launch, [m, n, k], bias);
        if residual {
            y.iter_mut().zip(launch.before("residual")).for_each(|(y, residual)| *y += residual);
        }
        close(&launch.after("y"), &y, 1.0);
    }
}

#[test]
fn gated_gemms_are_an_activation_of_one_half_times_the_other() {
    let (m, n, k) = (5, 16, 48);
    let params = gemm_swiglu_params { m: m as u32, n: n as u32, k: k as u32, ..Default::default() };
    for key in ["gemm.swiglu{bias=true,w=i8,x=i8}", "gemm.swiglu{bias=true,gate=gelu_tanh,w=i8,x=i8}"] {
        let launch = Launch::of(key, params, 7);
        let gate_up = gemm(&launch, [m, 2 * n, k], true);
        close(&launch.after("y"), &gated(&gate_up, n as u32, activation(&launch)), 6.0);
    }
}

/// Sums at their largest: every term is 127 x 127, over a depth at which f32 would have lost the last bits long before.
#[test]
fn sums_are_exact_at_the_depth_of_the_largest_models() {
    let (n, k) = (8, 53_248);
    let params = gemm_fwd_params { m: 2, n, k, ..Default::default() };
    let mut launch = Launch::of("gemm.fwd{bias=false,residual=true,w=i8,x=i8}", params, 8);
    for (name, value) in [("x", 127.0), ("w", 127.0), ("x_scale", 1.0), ("w_scale", 1.0), ("residual", -858_800_000.0)]
    {
        launch.set(name, &vec![value; launch.before(name).len()]); // the residual is nearly all of the sum
    }
    let exact = (f64::from(k) * 127.0 * 127.0) as f32; // of an i32, rounded once
    let expected = exact + half::bf16::from_f32(-858_800_000.0).to_f32();
    let expected = f64::from(half::bf16::from_f32(expected));
    assert!(launch.after("y").iter().all(|y| *y == expected), "{:?} {expected}", launch.after("y"));
}
