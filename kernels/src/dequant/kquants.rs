//! The K-quants: blocks of 256 values with a scale for every 16 or 32 of them, itself quantized.

use super::quants::half_at;
use crate::format::Block;

/// Values of a block.
pub(super) const LEN: usize = Block::Q4_K.elems() as usize;
/// Values that share a scale and a minimum in Q4_K and Q5_K.
const GROUP: usize = 32;

/// Returns scale and minimum of a group, 6 bits each: the first four groups have theirs in the low bits of 8 bytes, the
/// last four in the nibbles of 4 bytes and the high bits of the 8.
fn scale_min(packed: &[u8], group: usize) -> (f32, f32) {
    let (scale, min) = if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (low & 0xF | packed[group - 4] >> 6 << 4, low >> 4 | packed[group] >> 6 << 4)
    };
    (f32::from(scale), f32::from(min))
}

/// Dequantizes groups of 32 values `scale * q - min`; two groups share 32 bytes, one nibble each. `high_bit` returns
/// the contribution of a value's fifth bit.
fn grouped(block: &[u8], nibbles: &[u8], out: &mut [f32; LEN], high_bit: impl Fn(usize, usize) -> u8) {
    let (scale, min) = (half_at(block, 0), half_at(block, 2));
    for (group, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        let (group_scale, group_min) = scale_min(&block[4..16], group);
        let (scale, min) = (scale * group_scale, min * group_min);
        let bytes = &nibbles[group / 2 * GROUP..][..GROUP];
        for (i, (out, byte)) in out.iter_mut().zip(bytes).enumerate() {
            let q = byte >> (4 * (group % 2)) & 0xF | high_bit(group, i);
            *out = scale * f32::from(q) - min;
        }
    }
}

/// Scale and minimum of the block, 12 bytes of the groups' scales and minima, then 256 numbers of 4 bits.
pub(super) fn q4_k(block: &[u8; 144], out: &mut [f32; LEN]) {
    grouped(block, &block[16..], out, |_, _| 0);
}

/// Like Q4_K, with 32 bytes of fifth bits, one bit per group, before the 256 numbers.
pub(super) fn q5_k(block: &[u8; 176], out: &mut [f32; LEN]) {
    let high_bits = &block[16..48];
    grouped(block, &block[48..], out, |group, i| (high_bits[i] >> group & 1) << 4);
}

/// 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 scales of 8 bits for 16 values each, scale of the block.
/// Values are numbers of 6 bits around 32. In either half of the block, four groups of 32 share the bytes.
pub(super) fn q6_k(block: &[u8; 210], out: &mut [f32; LEN]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let scale = half_at(rest, 16);
    for (group, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        let (half, quarter) = (group / 4, group % 4);
        let low = &low[64 * half + 32 * (quarter % 2)..][..GROUP];
        let high = &high[32 * half..][..GROUP];
        for (i, out) in out.iter_mut().enumerate() {
            let q = low[i] >> (4 * (quarter / 2)) & 0xF | (high[i] >> (2 * quarter) & 3) << 4;
            let group_scale = f32::from(rest[2 * group + i / 16] as i8);
            *out = scale * group_scale * f32::from(q as i8 - 32);
        }
    }
}
