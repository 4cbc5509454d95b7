//! Random weights in block formats: blocks of any numbers, under scales that make their values as large as weights.

use half::f16;
use precast_kernels::Block;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

/// Elements drawn from one random stream: whole blocks of any format.
const STREAM: u64 = 1 << 16;

/// The standard deviation of a block's values under a scale of one, and the minimum, in scales, that makes their mean
/// about zero. All its numbers are uniform, those that scale its groups too.
fn spread(block: Block) -> (f32, f32) {
    match block {
        Block::Q4_0 => (4.61, 0.0),
        Block::Q4_1 => (4.61, -7.5),
        Block::Q5_0 => (9.23, 0.0),
        Block::Q5_1 => (9.23, -15.5),
        Block::Q8_0 => (73.9, 0.0),
        // The minimum is subtracted.
        Block::Q4_K => (258.3, 7.5),
        Block::Q5_K => (526.9, 15.5),
        Block::Q6_K => (1365.7, 0.0),
    }
}

/// Fills memory with blocks whose values have a standard deviation of `range`. The same stream gives the same bytes on
/// any machine.
pub fn fill(out: &mut [u8], block: Block, stream: u64, range: f32) {
    let (deviation, minimum) = spread(block);
    let scale = range / deviation;
    let halves = [scale, scale * minimum].map(|half| f16::from_f32(half).to_le_bytes());
    out.par_chunks_mut((STREAM / block.elems() * block.bytes()) as usize).enumerate().for_each(|(index, out)| {
        Pcg64Mcg::seed_from_u64(stream.wrapping_add(index as u64)).fill_bytes(out);
        for one in out.chunks_exact_mut(block.bytes() as usize) {
            for (at, half) in block.halves().iter().zip(halves) {
                one[*at..at + 2].copy_from_slice(&half);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use precast_kernels::dequant::dequantize;

    use super::*;

    #[test]
    fn random_blocks_are_as_large_as_they_should_be() {
        const ELEMS: u64 = 512 * 512;
        for block in Block::ALL {
            let mut blocks = vec![0; (ELEMS / block.elems() * block.bytes()) as usize];
            fill(&mut blocks, block, 3, 0.02);
            let mut again = vec![1; blocks.len()];
            fill(&mut again, block, 3, 0.02);
            assert!(blocks == again, "{block}");
            let mut values = vec![0.0; ELEMS as usize];
            dequantize(block, &blocks, &mut values);
            let count = values.len() as f64;
            let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
            let square = values.iter().map(|value| f64::from(value * value)).sum::<f64>() / count;
            assert!(mean.abs() < 3e-3 && (square.sqrt() - 0.02).abs() < 5e-4, "{block} {mean} {}", square.sqrt());
        }
    }
}
