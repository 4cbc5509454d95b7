//! Form in which files have parameters where it is not that of Hugging Face's: in another order, or as other values.

use precast_kernels::Gamma;
use precast_plan::ModelConfig;

use super::heads::{Interleaved, deinterleave, interleave};
use super::kind::Kind;
use super::tiles::{Tiled, Tiling};

/// Changes that files of a model make to parameters; none by default.
#[derive(Default)]
pub(super) struct Form {
    /// The heads whose rows files have in another order.
    pub interleaved: Option<Interleaved>,
    /// The heads of the gated delta rule; files have decays as `-exp(A_log)`.
    pub tiled: Option<Tiled>,
    /// Files have norms with one added, but the gated norm.
    pub adds_one: bool,
}

/// True for the weight of a norm but the gated one, by its Hugging Face name.
fn is_norm(name: &str) -> bool {
    name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight")
}

impl Form {
    /// Form of GGUF files.
    pub fn of_gguf(config: &ModelConfig) -> Self {
        let ModelConfig { family, heads, kv_heads, delta_heads, .. } = *config;
        let (heads, kv_heads) = (heads.into(), kv_heads.into());
        Self {
            interleaved: family.gguf_interleaves_heads.then_some(Interleaved { family, heads, kv_heads }),
            tiled: delta_heads.map(|heads| Tiled { family, heads }),
            adds_one: family.gamma == Gamma::OnePlus,
        }
    }

    /// The order of a tensor's elements, by its Hugging Face name and its shape, rows first.
    ///
    /// # Errors
    /// Error of a shape that is not that of the heads.
    pub fn order(&self, name: &str, shape: &[u64]) -> Result<Order, String> {
        if let Some(heads) = self.interleaved.as_ref().and_then(|heads| heads.of(name)) {
            let rows = shape.first().copied().unwrap_or(0);
            return match rows > 0 && rows.is_multiple_of(2 * heads) {
                true => Ok(Order::Interleaved { heads, head_rows: rows / heads }),
                false => Err(format!("the {rows} rows of tensor {name} are not those of {heads} heads")),
            };
        }
        let tiling = self.tiled.as_ref().map_or(Ok(None), |tiled| tiled.of(name, shape))?;
        Ok(tiling.map_or(Order::Same, Order::Tiled))
    }

    /// True if files have other values of a tensor.
    pub fn has_other_values(&self, name: &str) -> bool {
        self.adds_one && is_norm(name) || self.is_decay(name)
    }

    fn is_decay(&self, name: &str) -> bool {
        self.tiled.is_some() && name.ends_with(".A_log")
    }

    /// Turns a file's values of a tensor into a model's. What of them is finer than 2^-24 was lost in the file.
    ///
    /// # Errors
    /// The first of decays that is not below zero, and its index.
    pub fn read_values(&self, name: &str, values: &mut [f32]) -> Result<(), (usize, f32)> {
        if self.adds_one && is_norm(name) {
            values.iter_mut().for_each(|value| *value -= 1.0);
        }
        if !self.is_decay(name) {
            return Ok(());
        }
        // Also one that is no number.
        let is_below_zero = |value: f32| value < 0.0;
        if let Some((index, value)) = values.iter().copied().enumerate().find(|(_, value)| !is_below_zero(*value)) {
            return Err((index, value));
        }
        values.iter_mut().for_each(|value| *value = (-f64::from(*value)).ln() as f32);
        Ok(())
    }

    /// Turns a model's values of a tensor into a file's, in f32 as llama.cpp's converter.
    pub fn write_values(&self, name: &str, values: &mut [f32]) {
        if self.adds_one && is_norm(name) {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        if self.is_decay(name) {
            values.iter_mut().for_each(|value| *value = -f64::from(*value).exp() as f32);
        }
    }
}

/// Order of a tensor's elements in a file.
pub(super) enum Order {
    /// Hugging Face's.
    Same,
    /// The halves of each head's rows are interleaved.
    Interleaved { heads: u64, head_rows: u64 },
    /// Value heads are tiled.
    Tiled(Tiling),
}

impl Order {
    pub fn is_same(&self) -> bool {
        matches!(self, Self::Same)
    }

    /// Elements that have to be read together, of a tensor of so many in a kind of storage.
    pub fn unit(&self, elements: u64, kind: Kind) -> u64 {
        match self {
            Self::Same => kind.elems(),
            Self::Interleaved { heads, .. } => elements / heads,
            Self::Tiled(tiling) => tiling.line,
        }
    }

    /// True if elements move as whole blocks of a kind of storage.
    pub fn moves_whole(&self, kind: Kind) -> bool {
        if let Self::Tiled(tiling) = self { tiling.is_whole(kind) } else { true }
    }

    /// Puts elements of whole units, or the blocks that hold them, into Hugging Face's order; the tensor has `all`.
    pub fn read<T: Copy + Send + Sync>(&self, out: &mut [T], elements: u64, all: u64) {
        match self {
            Self::Same => {}
            Self::Interleaved { heads, head_rows } => {
                deinterleave(out, (elements / (all / heads)) as usize, *head_rows as usize);
            }
            Self::Tiled(tiling) => tiling.untile(out, elements),
        }
    }

    /// Puts the elements of a whole tensor into the file's order.
    pub fn write(&self, values: &mut [f32]) {
        match self {
            Self::Same => {}
            Self::Interleaved { heads, head_rows } => interleave(values, *heads as usize, *head_rows as usize),
            Self::Tiled(tiling) => tiling.tile(values, values.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qwen35() -> Form {
        let json = r#"{"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": 64,
            "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2, "vocab_size": 64,
            "max_position_embeddings": 64, "num_key_value_heads": 1}"#;
        Form::of_gguf(&ModelConfig::from_json(json).unwrap())
    }

    /// Decays of one and more keep their bits, smaller ones what f32 has of their exponential.
    #[test]
    fn decays_come_back_as_near_as_their_exponential_allows() {
        let name = "model.layers.0.linear_attn.A_log";
        let written: Vec<f32> = (1..2000).map(|step| step as f32 * 1.37e-3).collect();
        let mut values = written.clone();
        qwen35().write_values(name, &mut values);
        assert!(values.iter().all(|value| *value < -1.0));
        qwen35().read_values(name, &mut values).unwrap();
        for (value, written) in values.iter().zip(&written) {
            let bound = if *written > 1.0 { 0.0 } else { 2f32.powi(-24) };
            assert!((value - written).abs() <= bound, "{value} {written}");
        }
        for wrong in [0.0, 0.5, f32::NAN] {
            let found = qwen35().read_values(name, &mut [-1.0, wrong]).unwrap_err();
            assert_eq!((found.0, found.1.to_bits()), (1, wrong.to_bits()));
        }
    }

    #[test]
    fn all_norms_but_the_gated_one_have_one_added() {
        for (name, expected) in [
            ("model.norm.weight", 1.5),
            ("model.layers.0.input_layernorm.weight", 1.5),
            ("model.layers.3.self_attn.q_norm.weight", 1.5),
            ("model.layers.0.linear_attn.norm.weight", 0.5),
            ("model.layers.0.linear_attn.dt_bias", 0.5),
        ] {
            let mut value = [0.5];
            qwen35().write_values(name, &mut value);
            assert_eq!(value, [expected], "{name}");
            assert_eq!(qwen35().has_other_values(name), expected == 1.5, "{name}");
        }
    }
}
