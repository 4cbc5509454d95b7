//! Tensors that are wholly zero, found where weights are read.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use precast_kernels::dequant::dequantize;
use precast_kernels::{Block, Dtype, Format};

use super::CheckpointError;

/// Where one of these is zero every token is predicted alike, whatever else there is, and no gradient reaches the
/// layers.
const ESSENTIAL: [&str; 3] = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"];

/// Those of a model that have been read.
#[derive(Default)]
pub(super) struct Zeros(Mutex<BTreeSet<String>>);

impl Zeros {
    /// Takes down a tensor that is wholly zero. Biases are, of every new model.
    ///
    /// # Errors
    /// [`CheckpointError`] for one that nothing can be without.
    pub fn found(&self, path: &std::path::Path, tensor: &str) -> Result<(), CheckpointError> {
        if ESSENTIAL.contains(&tensor) {
            let reason =
                "is wholly zero, so that nothing trains and nothing is predicted: fetch or convert the model again";
            return Err(CheckpointError::of(path, format_args!("tensor {tensor} {reason}")));
        }
        if !tensor.ends_with(".bias") {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(tensor.to_owned());
        }
        Ok(())
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// True where every value is 0 or -0. The first few tell of a tensor that trains.
pub(crate) fn is_zero(bytes: &[u8], format: Format) -> bool {
    match format {
        Format::Dense(Dtype::Bf16) => bytes.as_chunks().0.iter().all(|value| u16::from_le_bytes(*value) << 1 == 0),
        Format::Dense(_) => bytes.as_chunks().0.iter().all(|value| u32::from_le_bytes(*value) << 1 == 0),
        Format::Block(block) => bytes.chunks_exact(block.bytes() as usize).all(|one| is_zero_block(one, block)),
    }
}

fn is_zero_block(bytes: &[u8], block: Block) -> bool {
    let mut values = vec![0.0; block.elems() as usize];
    dequantize(block, bytes, &mut values);
    values.iter().all(|value| *value == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_is_zero_where_every_value_is() {
        for (format, minus) in [(Format::Dense(Dtype::F32), 0x8000_0000u32), (Format::Dense(Dtype::Bf16), 0x8000_8000)]
        {
            let mut bytes = [0u32, minus, 0, 0].map(u32::to_le_bytes).concat();
            assert!(is_zero(&bytes, format));
            bytes[13] = 1;
            assert!(!is_zero(&bytes, format));
        }
        for block in Block::ALL {
            let mut bytes = vec![0; 3 * block.bytes() as usize];
            assert!(is_zero(&bytes, Format::Block(block)), "{block}");
            // Scales of one, of quants that are not all zero.
            bytes[2 * block.bytes() as usize..].fill(0x3C);
            assert!(!is_zero(&bytes, Format::Block(block)), "{block}");
        }
    }

    #[test]
    fn zeros_of_what_a_model_needs_are_refused_others_counted() {
        let zeros = Zeros::default();
        let found = |name: &str| zeros.found("m".as_ref(), name).map_err(|error| error.to_string());
        assert!(found("lm_head.weight").unwrap_err().starts_with("m: tensor lm_head.weight is wholly zero"));
        for name in ["model.layers.1.mlp.down_proj.weight", "model.layers.0.self_attn.q_proj.bias"] {
            found(name).unwrap();
        }
        assert_eq!(zeros.names(), ["model.layers.1.mlp.down_proj.weight"]);
    }
}
