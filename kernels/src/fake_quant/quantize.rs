//! Blocks of values: the reference of `fake_quant`, and the writer of GGUF files. Layouts are those of `ggml-common.h`.

use half::f16;
use rayon::prelude::*;

use super::scales::{affine_scale, extreme, inverse_of, stored_half, symmetric_scale, whole};
use crate::format::Block;

/// Blocks that one task of the thread pool quantizes.
const BLOCKS_A_TASK: usize = 256;

/// Quantizes values to whole blocks on all threads.
///
/// # Panics
/// For a format that is not in [`super::FORMATS`]; if `out` has not room for exactly the blocks.
pub fn quantize(block: Block, values: &[f32], out: &mut [u8]) {
    let (bytes, elems) = (block.bytes() as usize, block.elems() as usize);
    assert!(values.len().is_multiple_of(elems), "{} values are no whole blocks of {block}", values.len());
    assert_eq!(values.len() / elems * bytes, out.len(), "bytes of {} values in {block}", values.len());
    let tasks = values.par_chunks(elems * BLOCKS_A_TASK).zip(out.par_chunks_mut(bytes * BLOCKS_A_TASK));
    tasks.for_each(|(values, out)| match block {
        Block::Q4_0 => each(values, out, q4_0),
        Block::Q5_0 => each(values, out, q5_0),
        Block::Q8_0 => each(values, out, q8_0),
        Block::Q4_K => each(values, out, q4_k),
        Block::Q6_K => each(values, out, q6_k),
        Block::Q4_1 | Block::Q5_1 | Block::Q5_K => panic!("nothing is quantized to {block}"),
    });
}

/// Quantizes block by block.
fn each<const LEN: usize, const BYTES: usize>(
    values: &[f32],
    out: &mut [u8],
    block: impl Fn(&[f32; LEN], &mut [u8; BYTES]),
) {
    values.as_chunks().0.iter().zip(out.as_chunks_mut().0).for_each(|(values, out)| block(values, out));
}

/// Returns the scale as it is stored, and the numbers, `low` added, from 0.
fn symmetric<const N: usize>(low: f32, scale: f16, x: &[f32; N]) -> [u8; N] {
    let inverse = inverse_of(scale.to_f32());
    x.map(|x| (whole(x * inverse, low, -low - 1.0) - low) as u8)
}

fn q4_0(x: &[f32; 32], out: &mut [u8; 18]) {
    let scale = stored_half(symmetric_scale(-8.0, x));
    let q = symmetric(-8.0, scale, x);
    out[..2].copy_from_slice(&scale.to_le_bytes());
    for (i, byte) in out[2..].iter_mut().enumerate() {
        *byte = q[i] | q[i + 16] << 4;
    }
}

fn q5_0(x: &[f32; 32], out: &mut [u8; 22]) {
    let scale = stored_half(symmetric_scale(-16.0, x));
    let q = symmetric(-16.0, scale, x);
    let fifths = q.iter().rev().fold(0u32, |bits, q| bits << 1 | u32::from(q >> 4));
    out[..2].copy_from_slice(&scale.to_le_bytes());
    out[2..6].copy_from_slice(&fifths.to_le_bytes());
    for (i, byte) in out[6..].iter_mut().enumerate() {
        *byte = q[i] & 0xF | q[i + 16] << 4;
    }
}

/// The largest magnitude becomes 127, and halves are rounded away from zero, as `quantize_row_q8_0_ref` does.
fn q8_0(x: &[f32; 32], out: &mut [u8; 34]) {
    let scale = extreme(x).abs() / 127.0;
    let inverse = inverse_of(scale);
    out[..2].copy_from_slice(&stored_half(scale).to_le_bytes());
    for (byte, x) in out[2..].iter_mut().zip(x) {
        *byte = (x * inverse).round().clamp(-127.0, 127.0) as i8 as u8;
    }
}

/// Returns values as multiples, in 6 bits, of the largest: the multiple in f16, and each number.
fn in_six_bits(values: [f32; 8]) -> (f16, [u8; 8]) {
    let positive = values.map(|value| if value > 0.0 { value } else { 0.0 });
    let largest = positive.iter().fold(0.0f32, |largest, value| largest.max(*value));
    let factor = 63.0 * inverse_of(largest);
    (stored_half(largest / 63.0), positive.map(|value| whole(value * factor, 0.0, 63.0) as u8))
}

fn q4_k(x: &[f32; 256], out: &mut [u8; 144]) {
    let groups = x.as_chunks::<32>().0;
    let mut fitted = [super::scales::Affine::default(); 8];
    fitted.iter_mut().zip(groups).for_each(|(fitted, group)| *fitted = affine_scale(group));
    let (scale, scales) = in_six_bits(fitted.map(|it| it.scale));
    let (min, mins) = in_six_bits(fitted.map(|it| it.min));
    out[..2].copy_from_slice(&scale.to_le_bytes());
    out[2..4].copy_from_slice(&min.to_le_bytes());
    out[4..].fill(0);
    for group in 0..4 {
        out[4 + group] = scales[group] | scales[group + 4] >> 4 << 6;
        out[8 + group] = mins[group] | mins[group + 4] >> 4 << 6;
        out[12 + group] = scales[group + 4] & 0xF | mins[group + 4] << 4;
    }
    for (group, x) in groups.iter().enumerate() {
        let scale = scale.to_f32() * f32::from(scales[group]);
        let (min, inverse) = (min.to_f32() * f32::from(mins[group]), inverse_of(scale));
        for (byte, x) in out[16 + group / 2 * 32..].iter_mut().zip(x) {
            *byte |= (whole((x + min) * inverse, 0.0, 15.0) as u8) << (4 * (group % 2));
        }
    }
}

fn q6_k(x: &[f32; 256], out: &mut [u8; 210]) {
    let groups = x.as_chunks::<16>().0;
    let mut fitted = [0.0; 16];
    fitted.iter_mut().zip(groups).for_each(|(fitted, group)| *fitted = symmetric_scale(-32.0, group));
    let largest = extreme(&fitted);
    let (scale, factor) = (stored_half(largest / -128.0), -128.0 * inverse_of(largest));
    out.fill(0);
    out[208..].copy_from_slice(&scale.to_le_bytes());
    for (index, (x, fitted)) in groups.iter().zip(fitted).enumerate() {
        let number = whole(fitted * factor, -128.0, 127.0);
        out[192 + index] = number as i8 as u8;
        let inverse = inverse_of(scale.to_f32() * number);
        // In either half of the block, four groups of 32 share the bytes.
        let (half, quarter, first) = (index / 8, index / 2 % 4, index % 2 * 16);
        for (i, x) in (first..).zip(x) {
            let q = (whole(x * inverse, -32.0, 31.0) + 32.0) as u8;
            out[64 * half + 32 * (quarter % 2) + i] |= (q & 0xF) << (4 * (quarter / 2));
            out[128 + 32 * half + i] |= (q >> 4) << (2 * quarter);
        }
    }
}
