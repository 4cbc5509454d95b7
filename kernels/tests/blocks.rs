//! The block formats against implementations that share nothing with ours: values of real files, and ggml's formulas,
//! value by value, in f64. That is exact: whatever a block holds is a multiple of 2^-24 below 2^29. So the nearest f32
//! is the one right answer, to the bit.
//!
//! The trainer's tests compare every format with what the Python package `gguf` makes of it.

use half::f16;
use precast_kernels::{Block, KERNELS, check::Case, dequant::dequantize};
use proptest::prelude::*;

pub fn half(block: &[u8], at: usize) -> f64 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f64()
}

/// Bits `[from, from + count)` of a byte.
fn bits(byte: u8, from: usize, count: u32) -> f64 {
    f64::from(u32::from(byte) >> from & ((1 << count) - 1))
}

/// The nibble of value `i` of 32: the low ones of 16 bytes, then the high ones.
fn nibble(bytes: &[u8], i: usize) -> f64 {
    bits(bytes[i % 16], i / 16 * 4, 4)
}

/// Bit `i` of these bytes.
fn bit(bytes: &[u8], i: usize) -> f64 {
    bits(bytes[i / 8], i % 8, 1)
}

/// Scale and minimum of group `j`: `get_scale_min_k4` of ggml.
pub fn scale_min_k4(q: &[u8], j: usize) -> (f64, f64) {
    if j < 4 {
        (bits(q[j], 0, 6), bits(q[j + 4], 0, 6))
    } else {
        (bits(q[j + 4], 0, 4) + 16.0 * bits(q[j - 4], 6, 2), bits(q[j + 4], 4, 4) + 16.0 * bits(q[j], 6, 2))
    }
}

/// Value `i` of a block.
pub fn formula(format: Block, b: &[u8], i: usize) -> f64 {
    match format {
        Block::Q4_0 => (nibble(&b[2..], i) - 8.0) * half(b, 0),
        Block::Q4_1 => nibble(&b[4..], i) * half(b, 0) + half(b, 2),
        Block::Q5_0 => (nibble(&b[6..], i) + 16.0 * bit(&b[2..6], i) - 16.0) * half(b, 0),
        Block::Q5_1 => (nibble(&b[8..], i) + 16.0 * bit(&b[4..8], i)) * half(b, 0) + half(b, 2),
        Block::Q8_0 => f64::from(b[2 + i] as i8) * half(b, 0),
        Block::Q4_K | Block::Q5_K => {
            let (group, place) = (i / 32, i % 32);
            let (scale, min) = scale_min_k4(&b[4..16], group);
            let low = if format == Block::Q4_K { &b[16..] } else { &b[48..] };
            let mut q = bits(low[group / 2 * 32 + place], group % 2 * 4, 4);
            if format == Block::Q5_K {
                q += 16.0 * bits(b[16 + place], group, 1);
            }
            half(b, 0) * scale * q - half(b, 2) * min
        }
        Block::Q6_K => {
            let (part, place) = (i / 128, i % 128);
            let low = bits(b[64 * part + place % 64], place / 64 * 4, 4);
            let high = bits(b[128 + 32 * part + place % 32], place / 32 * 2, 2);
            half(b, 208) * f64::from(b[192 + i / 16] as i8) * (low + 16.0 * high - 32.0)
        }
    }
}

proptest! {
    #[test]
    fn every_format_is_ggmls_formula(seed in any::<u64>(), x in prop::sample::select(vec!["f32", "bf16"])) {
        for format in Block::ALL {
            let key = KERNELS.parse(&format!("dequant{{w={format},x={x}}}")).unwrap();
            let params = key.kernel().samples().pop().unwrap();
            let case = Case::new(&key, &params, seed);
            let after = case.reference();
            let (bytes, elems) = (format.bytes() as usize, format.elems() as usize);
            for (at, block) in case.before[0].chunks_exact(bytes).enumerate() {
                for i in 0..elems {
                    let (right, index) = (formula(format, block, i) as f32, at * elems + i);
                    if x == "f32" {
                        let found = f32::from_le_bytes(after[1][4 * index..][..4].try_into().unwrap());
                        prop_assert_eq!(found.to_bits(), right.to_bits(), "{} {}: {}, {}", format, index, found, right);
                    } else {
                        let found = half::bf16::from_le_bytes(after[1][2 * index..][..2].try_into().unwrap());
                        prop_assert_eq!(found.to_bits(), half::bf16::from_f32(right).to_bits(), "{} {}", format, index);
                    }
                }
            }
        }
    }
}

/// A row of `token_embd` and one of `attn_v` of Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, with their values from elsewhere.
#[test]
fn rows_of_a_real_file_have_their_values() {
    let rows: [(Block, &[u8], &[u8]); 2] = [
        (Block::Q4_K, include_bytes!("fixtures/Q4_K.blocks"), include_bytes!("fixtures/Q4_K.f32")),
        (Block::Q6_K, include_bytes!("fixtures/Q6_K.blocks"), include_bytes!("fixtures/Q6_K.f32")),
    ];
    for (format, blocks, values) in rows {
        let right: Vec<u32> = values.as_chunks().0.iter().map(|value| u32::from_le_bytes(*value)).collect();
        let mut out = vec![f32::NAN; 1536];
        dequantize(format, blocks, &mut out);
        assert_eq!(out.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), right, "{format}");
    }
}

/// Random blocks of checks reach the corners: scales of both signs, zero, subnormal; every nibble.
#[test]
fn checked_blocks_have_every_kind_of_scale_and_are_finite() {
    for format in Block::ALL {
        let key = KERNELS.parse(&format!("dequant{{w={format},x=f32}}")).unwrap();
        let params = key.kernel().samples().pop().unwrap();
        let (mut zeros, mut subnormal, mut negative, mut normal, mut nibbles) = (0, 0, 0, 0, [0; 16]);
        for seed in 0..4 {
            let case = Case::new(&key, &params, seed);
            for block in case.before[0].chunks_exact(format.bytes() as usize) {
                for at in format.halves() {
                    let scale = half(block, *at);
                    assert!(scale.is_finite());
                    negative += usize::from(scale < 0.0);
                    match scale.abs() {
                        0.0 => zeros += 1,
                        size if size < f16::MIN_POSITIVE.to_f64() => subnormal += 1,
                        _ => normal += 1,
                    }
                }
                let codes = &block[format.bytes() as usize / 2..];
                codes.iter().for_each(|byte| nibbles[usize::from(byte & 0xF)] += 1);
            }
        }
        assert!(zeros > 0 && subnormal > 0 && negative > 0 && normal > 0, "{format}");
        assert!(nibbles.iter().all(|count| *count > 0), "{format}: {nibbles:?}");
    }
}
