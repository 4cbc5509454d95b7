//! The references of what is in int8 against the formulas in f64: a rotation is an orthonormal matrix, a scale is of the largest value, and
//! GEMMs are those of the matrices that were quantized.

use precast_kernels::abi::{
    gemm_fwd_params, gemm_swiglu_params, int8_columns_params, int8_quantize_params, rmsnorm_bwd_params,
    rmsnorm_dgrad_params, rmsnorm_fwd_params, swiglu_bwd_params, swiglu_fwd_params,
};
use precast_kernels::check::Case;
use precast_kernels::host::Buffer;
use precast_kernels::int8::rotation;
use precast_kernels::{Dtype, Format, Key, Operand};

/// A launch by the reference: operands before and after it, as numbers.
struct Launch {
    case: Case,
    after: Vec<Buffer>,
}

impl Launch {
    fn new<P: bytemuck::Pod>(key: &str, params: P, seed: u64) -> Self {
        Self::with(key, params, seed, |_, _| {})
    }

    /// With operands that `change` has changed: their names and bytes.
    fn with<P: bytemuck::Pod>(key: &str, params: P, seed: u64, mut change: impl FnMut(&str, &mut [u8])) -> Self {
        let mut case = Case::new(&Key::parse(key).unwrap(), bytemuck::bytes_of(&params), seed);
        case.operands.iter().zip(&mut case.before).for_each(|(operand, bytes)| change(operand.name, bytes));
        let after = case.reference();
        Self { case, after }
    }

    /// An operand, if the kernel has it, and its bytes: what it wrote, or what it read.
    fn operand(&self, name: &str) -> Option<(&Operand, &[u8])> {
        let index = self.case.operands.iter().position(|operand| operand.name == name)?;
        let operand = &self.case.operands[index];
        let bytes = if operand.access.writes() { &self.after[index] } else { &self.case.before[index] };
        Some((operand, bytes))
    }

    fn numbers(&self, name: &str) -> Vec<f64> {
        let (operand, bytes) = self.operand(name).unwrap();
        match operand.format {
            Format::Dense(Dtype::I8) => bytes.iter().map(|byte| f64::from(*byte as i8)).collect(),
            Format::Dense(Dtype::Bf16) => {
                bytemuck::pod_collect_to_vec::<u8, half::bf16>(bytes).into_iter().map(f64::from).collect()
            }
            _ => bytemuck::pod_collect_to_vec::<u8, f32>(bytes).into_iter().map(f64::from).collect(),
        }
    }
}

/// The row times the orthonormal Hadamard matrix of each block of r, by its definition: element (i, j) has the sign of the
/// number of ones in i and j.
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

#[test]
fn values_are_rotated_rows_in_steps_of_their_scale() {
    for (k, x) in [(16, "bf16"), (48, "f32"), (96, "bf16"), (320, "f32"), (1536, "bf16")] {
        let (rows, key) = (40, format!("int8.quantize{{k={k},x={x}}}"));
        let launch = Launch::new(&key, int8_quantize_params { rows, ..Default::default() }, 3);
        let (x, q, scale) = (launch.numbers("x"), launch.numbers("q"), launch.numbers("scale"));
        for (row, scale) in scale.iter().enumerate() {
            let part = |all: &[f64]| all[row * k..][..k].to_vec();
            is_quantized(&part(&x), &part(&q), *scale, &format!("{key}, row {row}"));
        }
        // Rows of zeros, outliers and the largest numbers were among them.
        assert!(scale.contains(&0.0) && scale.iter().any(|scale| *scale > 1e30), "{scale:?}");
    }
}

#[test]
fn columns_are_rows_of_the_transpose() {
    for (n, x) in [(16, "bf16"), (96, "bf16"), (1536, "f32")] {
        let (columns, key) = (40, format!("int8.columns{{n={n},x={x}}}"));
        let launch = Launch::new(&key, int8_columns_params { columns, ..Default::default() }, 3);
        let (x, q, scale) = (launch.numbers("x"), launch.numbers("q"), launch.numbers("scale"));
        for (column, scale) in scale.iter().enumerate() {
            let row: Vec<f64> = (0..n).map(|i| x[i * columns as usize + column]).collect();
            is_quantized(&row, &q[column * n..][..n], *scale, &format!("{key}, column {column}"));
        }
        assert!(scale.contains(&0.0) && scale.iter().any(|scale| *scale > 1e30), "{scale:?}");
    }
}

#[test]
fn what_is_not_finite_has_no_scale_that_is_a_number() {
    let params = int8_quantize_params { rows: 3, ..Default::default() };
    for poison in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let launch = Launch::with("int8.quantize{k=64,x=f32}", params, 5, |name, bytes| {
            if name == "x" {
                let x: &mut [f32] = bytemuck::cast_slice_mut(bytes);
                x.iter_mut().enumerate().for_each(|(i, x)| *x = if i == 70 { poison } else { 1.0 });
            }
        });
        let scale = launch.numbers("scale");
        assert!(scale[1].is_nan() && scale[0].is_finite() && scale[2].is_finite(), "{poison}: {scale:?}");
        assert!(launch.numbers("q")[64..128].iter().all(|q| *q == 0.0));
    }
}

#[test]
fn a_norm_gives_the_rotated_rows_of_rmsnorm() {
    let (h, tokens, eps) = (192usize, 7, 1e-2);
    let params = rmsnorm_fwd_params { tokens: tokens as u32, eps, ..Default::default() };
    let launch = Launch::new(&format!("rmsnorm.fwd{{h={h},out=i8,residual=true,x=bf16}}"), params, 4);
    let (x, delta, gamma) = (launch.numbers("x"), launch.numbers("delta"), launch.numbers("gamma"));
    let (sum, q, scale) = (launch.numbers("sum"), launch.numbers("q"), launch.numbers("scale"));
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

/// Asserts that a kernel writes, of the same inputs, the bits of another one, and what `int8.quantize` makes of an output of that, of
/// rows of k.
fn is_the_pair<P: bytemuck::Pod>(key: &str, other: &str, params: P, output: &str, k: u32) {
    let rows = 7;
    let fused = Launch::new(key, params, 9);
    let other = Launch::with(other, params, 1, |name, bytes| {
        if let Some((_, given)) = fused.operand(name).filter(|(operand, _)| !operand.access.writes()) {
            bytes.copy_from_slice(given);
        }
    });
    let quantize = int8_quantize_params { rows, ..Default::default() };
    let quantized = Launch::with(&format!("int8.quantize{{k={k},x=bf16}}"), quantize, 1, |name, bytes| {
        if name == "x" {
            bytes.copy_from_slice(other.operand(output).unwrap().1);
        }
    });
    for (operand, written) in
        fused.case.operands.iter().zip(&fused.after).filter(|(operand, _)| operand.access.writes())
    {
        let pair = quantized.operand(operand.name).or_else(|| other.operand(operand.name));
        assert!(written[..] == *pair.unwrap().1, "{key}: {}", operand.name);
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
    for out in ["i8", "bf16+i8"] {
        let params = swiglu_fwd_params { tokens, n: 96, ..Default::default() };
        is_the_pair(&format!("swiglu.fwd{{n=96,out={out},x=bf16}}"), "swiglu.fwd{x=bf16}", params, "y", 96);
    }
    let params = swiglu_bwd_params { tokens, n: 384, ..Default::default() };
    is_the_pair("swiglu.bwd{n=384,out=bf16+i8,x=bf16}", "swiglu.bwd{x=bf16}", params, "dgate_up", 768);
}

/// x w^T of dequantized matrices, with a bias.
fn gemm(launch: &Launch, [m, n, k]: [usize; 3], has_bias: bool) -> Vec<f64> {
    let (x, w, sx, sw) =
        (launch.numbers("x"), launch.numbers("w"), launch.numbers("x_scale"), launch.numbers("w_scale"));
    let bias = if has_bias { launch.numbers("bias") } else { vec![0.0; n] };
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
        let launch = Launch::new(&format!("gemm.fwd{{bias={bias},residual={residual},w=i8,x=i8}}"), params, 6);
        let mut y = gemm(&launch, [m, n, k], bias);
        if residual {
            y.iter_mut().zip(launch.numbers("residual")).for_each(|(y, residual)| *y += residual);
        }
        close(&launch.numbers("y"), &y, 1.0);
    }
}

#[test]
fn gated_gemms_are_silu_of_one_half_times_the_other() {
    let (m, n, k) = (5, 16, 48);
    let params = gemm_swiglu_params { m: m as u32, n: n as u32, k: k as u32, ..Default::default() };
    let launch = Launch::new("gemm.swiglu{bias=true,w=i8,x=i8}", params, 7);
    let gated = gemm(&launch, [m, 2 * n, k], true);
    let silu = |gate: f64| gate / (1.0 + (-gate).exp());
    let y = gated.chunks(2 * n).flat_map(|row| (0..n).map(|j| silu(row[j]) * row[n + j]).collect::<Vec<_>>());
    close(&launch.numbers("y"), &y.collect::<Vec<_>>(), 6.0);
}

/// Sums at their largest: every term is 127 x 127, over a depth at which f32 would have lost the last bits long before.
#[test]
fn sums_are_exact_at_the_depth_of_the_largest_models() {
    let (n, k) = (8, 53_248);
    let params = gemm_fwd_params { m: 2, n, k, ..Default::default() };
    let launch = Launch::with("gemm.fwd{bias=false,residual=true,w=i8,x=i8}", params, 8, |name, bytes| match name {
        "x" | "w" => bytes.fill(127),
        "residual" => {
            let y: &mut [half::bf16] = bytemuck::cast_slice_mut(bytes);
            y.fill(half::bf16::from_f32(-858_800_000.0)); // nearly all of it
        }
        _ => {
            let scale: &mut [f32] = bytemuck::cast_slice_mut(bytes);
            scale.fill(1.0);
        }
    });
    let exact = (f64::from(k) * 127.0 * 127.0) as f32; // of an i32, rounded once
    let expected = exact + half::bf16::from_f32(-858_800_000.0).to_f32();
    let expected = f64::from(half::bf16::from_f32(expected));
    assert!(launch.numbers("y").iter().all(|y| *y == expected), "{:?} {expected}", launch.numbers("y"));
}
