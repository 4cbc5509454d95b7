//! Blocks of 32 values with one scale.

use half::f16;

/// Reads the half-precision number at an offset.
pub(super) fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Splits a byte into two 4-bit numbers: the low one belongs to the first half of a block.
fn nibbles(byte: u8) -> [u8; 2] {
    [byte & 0xF, byte >> 4]
}

/// Scale, then 32 numbers of 4 bits around 8.
pub(super) fn q4_0(block: &[u8; 18], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (i, &byte) in block[2..].iter().enumerate() {
        let [low, high] = nibbles(byte).map(|q| f32::from(q as i8 - 8) * scale);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// Scale, minimum, then 32 numbers of 4 bits.
pub(super) fn q4_1(block: &[u8; 20], out: &mut [f32; 32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    for (i, &byte) in block[4..].iter().enumerate() {
        let [low, high] = nibbles(byte).map(|q| f32::from(q) * scale + min);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// Returns the 5-bit numbers `i` and `i + 16`: a nibble each, and a bit each of four bytes.
fn five_bits(high_bits: &[u8; 4], byte: u8, i: usize) -> [u8; 2] {
    let high_bits = u32::from_le_bytes(*high_bits);
    let [low, high] = nibbles(byte);
    [low | ((high_bits >> i) as u8 & 1) << 4, high | ((high_bits >> (i + 16)) as u8 & 1) << 4]
}

/// Scale, fifth bits, then 32 numbers of 5 bits around 16.
pub(super) fn q5_0(block: &[u8; 22], out: &mut [f32; 32]) {
    let (scale, high_bits) = (half_at(block, 0), [block[2], block[3], block[4], block[5]]);
    for (i, &byte) in block[6..].iter().enumerate() {
        let [low, high] = five_bits(&high_bits, byte, i).map(|q| f32::from(q as i8 - 16) * scale);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// Scale, minimum, fifth bits, then 32 numbers of 5 bits.
pub(super) fn q5_1(block: &[u8; 24], out: &mut [f32; 32]) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    let high_bits = [block[4], block[5], block[6], block[7]];
    for (i, &byte) in block[8..].iter().enumerate() {
        let [low, high] = five_bits(&high_bits, byte, i).map(|q| f32::from(q) * scale + min);
        (out[i], out[i + 16]) = (low, high);
    }
}

/// Scale, then 32 numbers of 8 bits.
pub(super) fn q8_0(block: &[u8; 34], out: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    for (out, &byte) in out.iter_mut().zip(&block[2..]) {
        *out = f32::from(byte as i8) * scale;
    }
}
