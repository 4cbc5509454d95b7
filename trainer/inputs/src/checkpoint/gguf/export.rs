//! A model with its tokenizer as one file, as llama.cpp's `convert_hf_to_gguf.py` writes it.

use precast_kernels::Block;
use precast_plan::{Formats, ModelConfig, Parameter};
use serde_json::Value;
use tokenizers::Tokenizer;

use super::key_values::KeyValues;
use super::shape::Said;
use super::tokenizer::{self, Files};
use super::write::{Tensor, Values, header, tensors};
use super::{rope, shape};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::kind::Kind;

/// Numbers of `generation_config.json` that llama.cpp samples by, and their keys.
const SAMPLING: [(&str, &str, Number); 5] = [
    ("top_k", "general.sampling.top_k", Number::Integer),
    ("top_p", "general.sampling.top_p", Number::Decimal),
    ("min_p", "general.sampling.min_p", Number::Decimal),
    ("temperature", "general.sampling.temp", Number::Decimal),
    ("repetition_penalty", "general.sampling.penalty_repeat", Number::Decimal),
];

#[derive(Clone, Copy)]
enum Number {
    Integer,
    Decimal,
}

/// How matrices are stored in a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    F32,
    Bf16,
    Blocks {
        layers: Block,
        /// Format of embedding and head.
        ends: Block,
    },
}

impl Encoding {
    /// `LLAMA_FTYPE_*` of llama.h.
    fn file_type(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::Blocks { layers: Block::Q4_0, .. } => 2,
            Self::Blocks { layers: Block::Q4_K, .. } => 14,
            Self::Blocks { .. } => 7,
            Self::Bf16 => 32,
        }
    }

    /// Returns the kind of each parameter of a model. Vectors, norms among them, are F32 in every file, and matrices
    /// whose rows are no whole blocks are F16.
    fn kinds(self, config: &ModelConfig) -> impl Fn(&Parameter) -> Kind {
        let formats = match self {
            Self::Blocks { layers, ends } => Formats::rounded(config, layers, ends),
            Self::F32 | Self::Bf16 => Formats::dense(),
        };
        move |parameter| match (self, &parameter.shape[..]) {
            (Self::Bf16, [_, _]) => Kind::Bf16,
            (Self::Blocks { .. }, [_, _]) => formats.of(&parameter.name).map_or(Kind::F16, Kind::Block),
            _ => Kind::F32,
        }
    }
}

/// What a file says of a model besides its weights.
pub(in crate::checkpoint) struct About<'a> {
    pub name: String,
    pub config: &'a ModelConfig,
    /// Its `generation_config.json`.
    pub generation: Value,
    pub tokenizer: Files<'a>,
}

/// A file to write.
pub(in crate::checkpoint) struct Export {
    keys: KeyValues,
    pub tensors: Vec<Tensor>,
}

impl Export {
    /// Parameters are written in the order in which `place` sorts their names.
    ///
    /// # Errors
    /// [`Fault`] for a parameter or a tokenizer that GGUF has no words for.
    pub fn new<K: Ord>(about: &About<'_>, encoding: Encoding, place: impl Fn(&str) -> K) -> Result<Self, Fault> {
        let About { name, config, generation, tokenizer: files } = about;
        let mut tensors = tensors(config, encoding.kinds(config))?;
        tensors.sort_by_cached_key(|tensor| match &tensor.values {
            Values::Of(parameter) => Some((place(&parameter.name), parameter.name.clone())),
            Values::Given(_) => None,
        });
        if let Some(factors) = rope::factors(config) {
            let factors = Tensor { name: rope::FACTORS.to_owned(), kind: Kind::F32, values: Values::Given(factors) };
            tensors.insert(0, factors);
        }
        let mut keys = KeyValues::default();
        keys.string("general.architecture", config.family.gguf);
        keys.string("general.type", "model");
        for (field, key, number) in SAMPLING {
            match (number, generation.get(field)) {
                (Number::Integer, Some(value)) => {
                    let value = value.as_i64().and_then(|value| i32::try_from(value).ok());
                    value.into_iter().for_each(|value| keys.signed(key, value));
                }
                (Number::Decimal, Some(value)) => {
                    value.as_f64().into_iter().for_each(|value| keys.float(key, value as f32));
                }
                (_, None) => {}
            }
        }
        keys.string("general.name", name);
        keys.string("general.size_label", &size_label(tensors.iter().map(Tensor::elements).sum()));
        shape::write(&mut keys, config, &Said::of(files.model), encoding.file_type())?;
        tokenizer::write(&mut keys, files, config.family, config.vocab)?;
        Ok(Self { keys, tensors })
    }

    /// Everything before the first tensor's values.
    pub fn header(&self) -> Vec<u8> {
        header(&self.keys, &self.tensors)
    }

    /// The tokenizer as readers of the file build it.
    ///
    /// # Errors
    /// [`Fault`] where they cannot.
    pub fn tokenizer(&self) -> Result<Tokenizer, Fault> {
        tokenizer::tokenizer(&self.keys.read_back()?, &self.keys.bytes)
    }
}

/// A number of parameters in two digits: 494M, 1.5B.
fn size_label(parameters: u64) -> String {
    let (unit, suffix) = [(1e12, "T"), (1e9, "B"), (1e6, "M")]
        .into_iter()
        .find(|(unit, _)| parameters as f64 > *unit)
        .unwrap_or((1e3, "K"));
    let scaled = parameters as f64 / unit;
    // A rounded 0 has no digit.
    let digits = scaled.round_ties_even().to_string().trim_start_matches('0').len();
    format!("{scaled:.*}{suffix}", 2usize.saturating_sub(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named_as_llama_cpps_converter_names_them() {
        let sizes = [
            (494_032_768, "494M"),
            (1_543_714_304, "1.5B"),
            (134_515_008, "135M"),
            (271, "0.27K"),
            (9_400, "9.4K"),
            (9_600, "10K"),
        ];
        sizes.into_iter().for_each(|(parameters, label)| assert_eq!(size_label(parameters), label));
    }
}
