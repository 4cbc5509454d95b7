//! Quantization to blocks, in f64 and by what blocks hold: numbers are the nearest of their scale, and scales have less
//! error than those of the range, which is what `quantize_row_q4_0_ref` and its like take.

use half::f16;
use precast_kernels::Block;
use precast_kernels::fake_quant::{FORMATS, quantize};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64Mcg;

use crate::blocks::{formula, half, scale_min_k4};

/// Whole blocks of numbers as weights have them, some with an outlier.
fn values(seed: u64) -> Vec<f32> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let value = |index: u32| {
        let value: f32 = rng.sample(StandardNormal);
        0.02 * value * if index.is_multiple_of(97) { 6.0 } else { 1.0 }
    };
    (0..4096).map(value).collect()
}

fn quantized(block: Block, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0xAB; values.len() / block.elems() as usize * block.bytes() as usize];
    quantize(block, values, &mut bytes);
    bytes
}

/// Scale and minimum of value `i` of a block, and the least and largest number.
fn levels(format: Block, b: &[u8], i: usize) -> (f64, f64, [f64; 2]) {
    match format {
        Block::Q4_0 => (half(b, 0), 0.0, [-8.0, 7.0]),
        Block::Q5_0 => (half(b, 0), 0.0, [-16.0, 15.0]),
        Block::Q8_0 => (half(b, 0), 0.0, [-127.0, 127.0]),
        Block::Q4_K => {
            let (scale, min) = scale_min_k4(&b[4..16], i / 32);
            (half(b, 0) * scale, half(b, 2) * min, [0.0, 15.0])
        }
        Block::Q6_K => (half(b, 208) * f64::from(b[192 + i / 16] as i8), 0.0, [-32.0, 31.0]),
        other => panic!("nothing is quantized to {other}"),
    }
}

/// Values of blocks, in f64.
fn dequantized(format: Block, bytes: &[u8]) -> Vec<f64> {
    let blocks = bytes.chunks_exact(format.bytes() as usize);
    blocks.flat_map(|block| (0..format.elems() as usize).map(|i| formula(format, block, i))).collect()
}

fn error(values: &[f32], found: &[f64]) -> f64 {
    values.iter().zip(found).map(|(x, v)| (f64::from(*x) - v).powi(2)).sum()
}

#[test]
fn every_number_is_the_nearest_of_its_scale() {
    for format in FORMATS {
        for seed in 0..8 {
            let (values, elems) = (values(seed), format.elems() as usize);
            let bytes = quantized(format, &values);
            let blocks = bytes.chunks_exact(format.bytes() as usize).zip(values.chunks_exact(elems));
            for (block, values) in blocks {
                for (i, x) in values.iter().enumerate() {
                    let (scale, min, [least, most]) = levels(format, block, i);
                    let ends = [least, most].map(|q| scale * q - min);
                    let reached = f64::from(*x).clamp(ends[0].min(ends[1]), ends[0].max(ends[1]));
                    let far = (formula(format, block, i) - reached).abs();
                    // In Q8_0 numbers are rounded by the scale in f32, which f16 rounds.
                    let slack = if format == Block::Q8_0 { 0.06 } else { 1e-4 };
                    assert!(far <= scale.abs() * (0.5 + slack), "{format} {i}: {x}, {far} at a scale of {scale}");
                }
            }
        }
    }
}

/// Quantizes to numbers from `low` by the largest magnitude, as ggml's references do.
fn of_range(low: f64, x: &[f32]) -> Vec<f64> {
    let group = |x: &[f32]| {
        let extreme = x.iter().fold(0.0f32, |most, x| if x.abs() > most.abs() { *x } else { most });
        let scale = f16::from_f64(f64::from(extreme) / low).to_f64();
        let value = move |x: &f32| (f64::from(*x) / scale).round().clamp(low, -low - 1.0) * scale;
        x.iter().map(value).collect::<Vec<_>>()
    };
    x.chunks_exact(32).flat_map(group).collect()
}

#[test]
fn scales_have_less_error_than_those_of_the_range() {
    for (format, low, most) in [(Block::Q4_0, -8.0, 0.96), (Block::Q5_0, -16.0, 0.96)] {
        for seed in 0..8 {
            let values = values(seed);
            let found = dequantized(format, &quantized(format, &values));
            let (all, range) = (error(&values, &found), of_range(low, &values));
            let ratio = all / error(&values, &range);
            assert!(ratio < most, "{format}: {ratio}");
            for (block, x) in values.chunks_exact(32).enumerate() {
                let [found, range] = [&found, &range].map(|of| error(x, &of[32 * block..][..32]));
                assert!(found <= 1.002 * range, "{format} {block}: {found}, {range}");
            }
        }
    }
    let x = values(8);
    let of = |block| error(&x, &dequantized(block, &quantized(block, &x)));
    // So have 16 values with a scale of their own, and those with a minimum less than those without.
    let ratio = of(Block::Q6_K) / error(&x, &of_range(-32.0, &x));
    assert!(ratio < 0.9, "{ratio}");
    assert!(of(Block::Q4_K) < of(Block::Q4_0));
}

/// Zeros stay zeros, and no block holds what is not finite.
#[test]
fn rows_of_zeros_outliers_and_the_ends_of_f32_are_finite() {
    for format in FORMATS {
        let zeros = dequantized(format, &quantized(format, &[0.0; 256]));
        assert!(zeros.iter().all(|value| *value == 0.0), "{format}");
        for size in [f32::MAX, 1e30, 65504.0, 1e-7, 1e-20, f32::MIN_POSITIVE, f32::from_bits(1)] {
            for place in [0, 17, 255] {
                let mut values = [0.0f32; 256];
                values[place] = -size;
                let found = dequantized(format, &quantized(format, &values));
                assert!(found.iter().all(|value| value.is_finite()), "{format} {size}");
            }
            let found = dequantized(format, &quantized(format, &[size; 256]));
            assert!(found.iter().all(|value| value.is_finite()), "{format} {size}");
            let reached = (1e-6..60000.0).contains(&f64::from(size));
            assert!(!reached || (found[3] / f64::from(size) - 1.0).abs() < 0.1, "{format} {size}: {}", found[3]);
        }
    }
}
