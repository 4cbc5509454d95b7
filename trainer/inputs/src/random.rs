//! Random weights of a model's shape.

use std::path::Path;

use precast_kernels::{Dtype, Format};
use precast_plan::{ConfigError, Formats, ModelConfig, Parameter};
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

use crate::checkpoint::{Checkpoint, CheckpointError, Read, Scratch, Weights, config_json};
use crate::random_blocks;

/// Elements drawn from one random stream.
const BLOCK: usize = 1 << 16;

/// Weights drawn by a seed, the same on any machine.
pub struct Random {
    pub config: ModelConfig,
    seed: u64,
    range: f32,
}

impl Random {
    /// Weights for a `config.json`, and that as JSON.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn new(text: &str, seed: u64) -> Result<(Self, serde_json::Value), ConfigError> {
        let config = ModelConfig::from_json(text)?;
        let json: serde_json::Value = serde_json::from_str(text)?;
        let range = json.get("initializer_range").and_then(serde_json::Value::as_f64).unwrap_or(0.02) as f32;
        Ok((Self { config, seed, range }, json))
    }
}

/// A model's weights; for a bare `config.json` random ones.
///
/// # Errors
/// [`CheckpointError`] where it cannot be read.
pub fn read_or_random(path: &Path, seed: u64) -> Result<Box<dyn Weights>, CheckpointError> {
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(Box::new(Checkpoint::open(path)?));
    }
    let random = Random::new(&config_json(path)?, seed);
    let (random, _) = random.map_err(|error| CheckpointError::of(path, error))?;
    Ok(Box::new(random))
}

impl Weights for Random {
    fn config(&self) -> &ModelConfig {
        &self.config
    }

    fn dtype(&self) -> Option<Dtype> {
        None
    }

    fn stored(&self) -> String {
        "random weights".to_owned()
    }

    /// As a file in the mix of Q4_K_M has them: in blocks they are other random weights.
    fn formats(&self) -> Formats {
        Formats::q4_k_m(&self.config)
    }

    fn read<'a>(&'a self, parameter: &Parameter, format: Format, scratch: &'a mut Scratch) -> Read<'a> {
        match format {
            Format::Dense(dtype) => {
                initial(parameter, self.config.family.gamma.neutral(), (self.seed, self.range), scratch);
                Ok(scratch.encode(dtype))
            }
            Format::Block(block) => {
                let blocks = scratch.blocks(format.bytes(parameter.elems()) as usize);
                random_blocks::fill(blocks, block, self.seed ^ name_hash(&parameter.name), self.range);
                Ok(blocks)
            }
        }
    }
}

fn initial(parameter: &Parameter, norm: f32, (seed, range): (u64, f32), scratch: &mut Scratch) {
    let values = scratch.values(parameter.elems() as usize);
    match parameter.shape.len() {
        // As transformers begins: the gated norm multiplies by its weight in any family, and decays are of all lengths.
        1 if parameter.name.ends_with("linear_attn.norm.weight") => values.fill(1.0),
        1 if parameter.name.ends_with(".dt_bias") => values.fill(1.0),
        1 if parameter.name.ends_with(".A_log") => {
            draw(values, seed ^ name_hash(&parameter.name), |rng| rng.random_range(0.01f32..16.0).ln());
        }
        1 if parameter.name.ends_with("bias") => values.fill(0.0),
        1 => values.fill(norm),
        _ => {
            draw(values, seed ^ name_hash(&parameter.name), |rng| range * rng.sample::<f32, _>(StandardNormal));
        }
    }
}

/// Draws values on all threads. The same stream gives the same values on any machine.
pub(crate) fn draw(values: &mut [f32], stream: u64, one: impl Fn(&mut Pcg64Mcg) -> f32 + Sync) {
    values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
        let mut rng = Pcg64Mcg::seed_from_u64(stream.wrapping_add(block as u64));
        values.iter_mut().for_each(|value| *value = one(&mut rng));
    });
}

/// FNV-1a: each parameter draws from streams of its own.
pub(crate) fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_of_the_gated_delta_rule_begin_with_gates_that_are_open_and_decays_that_differ() {
        let values = |name: &str| {
            let (parameter, mut scratch) = (Parameter { name: name.into(), shape: vec![64] }, Scratch::default());
            initial(&parameter, 0.0, (1, 0.02), &mut scratch);
            bytemuck::pod_collect_to_vec::<u8, f32>(scratch.encode(Dtype::F32))
        };
        let [norm, dt_bias, a_log] =
            ["norm.weight", "dt_bias", "A_log"].map(|part| values(&format!("model.layers.0.linear_attn.{part}")));
        assert!(norm.iter().chain(&dt_bias).all(|value| *value == 1.0));
        assert!(a_log.iter().all(|value| (0.01f32.ln()..16f32.ln()).contains(value)) && a_log[0] != a_log[1]);
        assert!(values("model.layers.0.input_layernorm.weight").iter().all(|value| *value == 0.0));
    }

    #[test]
    fn weights_depend_on_seed_and_name_alone() {
        let parameter = |name: &str| Parameter { name: name.into(), shape: vec![100, 1000] };
        let values = |name, seed| {
            let mut scratch = Scratch::default();
            initial(&parameter(name), 1.0, (seed, 0.02), &mut scratch);
            scratch.encode(Dtype::F32).to_vec()
        };
        assert_eq!(values("a.weight", 1), values("a.weight", 1));
        assert_ne!(values("a.weight", 1), values("a.weight", 2));
        assert_ne!(values("a.weight", 1), values("b.weight", 1));
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&values("a.weight", 1));
        let deviation = (values.iter().map(|v| f64::from(v * v)).sum::<f64>() / values.len() as f64).sqrt();
        assert!((deviation - 0.02).abs() < 2e-4, "{deviation}");
    }
}
