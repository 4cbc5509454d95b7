//! Values as files store them: the inverse of what [`Kind::dequantize`] reads.

use half::{bf16, f16};
use precast_kernels::fake_quant::quantize;
use rayon::prelude::*;

use super::kind::Kind;

impl Kind {
    /// The values in this kind of storage, rounded to nearest even, or as [`quantize`] makes blocks.
    ///
    /// # Panics
    /// For a kind that no file is written in.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => bytemuck::cast_slice(values).to_vec(),
            Self::F16 => narrow(values, |value| f16::from_f32(value).to_le_bytes()),
            Self::Bf16 => narrow(values, |value| bf16::from_f32(value).to_le_bytes()),
            Self::Block(block) => {
                let mut bytes = vec![0; values.len() / block.elems() as usize * block.bytes() as usize];
                quantize(block, values, &mut bytes);
                bytes
            }
            Self::AprQ4 | Self::AprQ8 => panic!("no file is written in {self}"),
        }
    }
}

fn narrow<const N: usize>(values: &[f32], narrow: impl Fn(f32) -> [u8; N] + Sync) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * N];
    bytes.as_chunks_mut().0.par_iter_mut().zip(values).for_each(|(bytes, value)| *bytes = narrow(*value));
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use precast_kernels::Block;

    use super::*;

    proptest! {
        /// A value of Q8_0 is off by half of its block's step, and by what the f16 of the step is.
        #[test]
        fn values_come_back_as_near_as_their_storage_allows(values in prop::collection::vec(-4.0f32..4.0, 64)) {
            let kinds =
                [(Kind::F32, 0.0), (Kind::F16, 2f32.powi(-9)), (Kind::Bf16, 2f32.powi(-6)), (Kind::Block(Block::Q8_0),
                    0.019)];
            for (kind, bound) in kinds {
                let bytes = kind.encode(&values);
                prop_assert_eq!(bytes.len() as u64, kind.bytes(64).unwrap());
                let mut back = vec![0.0; 64];
                kind.dequantize(1.0, &bytes, &mut back);
                let far = values.iter().zip(&back).find(|(value, back)| (*value - *back).abs() > bound);
                prop_assert!(far.is_none(), "{} {:?}", kind, far);
                // What is stored already stays as it is.
                if kind != Kind::Block(Block::Q8_0) {
                    prop_assert_eq!(kind.encode(&back), bytes);
                }
            }
        }
    }

    #[test]
    fn a_block_of_q8_0_is_ggmls() {
        let mut values = [0.0f32; 32];
        values[..5].copy_from_slice(&[-1.27, 1.27, 0.005, -0.015, 0.0149]);
        let bytes = Kind::Block(Block::Q8_0).encode(&values);
        assert_eq!(bytes[..2], f16::from_f32(1.27 / 127.0).to_le_bytes());
        assert_eq!(bytes[2..7].iter().map(|byte| *byte as i8).collect::<Vec<_>>(), [-127, 127, 1, -2, 1]);
        assert_eq!(Kind::Block(Block::Q8_0).encode(&[0.0; 32]), [0; 34]);
    }
}
