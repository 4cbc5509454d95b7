//! A GGUF file as it is written: version 3, little-endian, without a tokenizer.

use precast_kernels::{Dtype, Format};
use precast_plan::{Formats, ModelConfig, Parameter, Parameters};

use super::keys::key_of;
use super::{names, types};
use crate::inputs::checkpoint::kind::Kind;

/// The file that is written.
pub const FILE: &str = "model.gguf";
/// What tensors start on a multiple of: what GGUF takes for granted where a file does not say.
const ALIGNMENT_BYTES: u64 = 32;
/// `LLAMA_FTYPE_MOSTLY_Q4_K_M` of llama.h.
const MOSTLY_Q4_K_M: u32 = 15;

/// A parameter as the file has it.
pub struct Tensor {
    /// As GGUF names it.
    pub name: String,
    pub parameter: Parameter,
    pub format: Format,
}

impl Tensor {
    pub fn bytes(&self) -> u64 {
        self.format.bytes(self.parameter.elems())
    }

    /// Its bytes up to where the next one starts.
    pub fn padded(&self) -> u64 {
        self.bytes().next_multiple_of(ALIGNMENT_BYTES)
    }

    fn kind(&self) -> Kind {
        match self.format {
            Format::Block(block) => Kind::Block(block),
            Format::Dense(_) => Kind::F32,
        }
    }
}

/// A model's parameters, or the first that has no name in GGUF files.
pub fn tensors(config: &ModelConfig, formats: &Formats) -> Result<Vec<Tensor>, Parameter> {
    let parameters = Parameters::new(config).list.into_iter();
    let tensors = parameters.map(|parameter| {
        let Some(name) = names::ggml(config.family, &parameter.name) else { return Err(parameter) };
        let format = formats.of(&parameter.name).map_or(Format::Dense(Dtype::F32), Format::Block);
        Ok(Tensor { name, parameter, format })
    });
    tensors.collect()
}

/// Everything before the first tensor's values.
pub fn header(config: &ModelConfig, tensors: &[Tensor]) -> Vec<u8> {
    let ModelConfig {
        family,
        hidden,
        intermediate,
        layers,
        heads,
        kv_heads,
        head_dim,
        vocab,
        max_positions,
        rms_norm_eps,
        rope_theta,
        // `init` refuses a scaled one.
        rope_scaling: _,
        // The tensors that there are say so.
        tied: _,
        qkv_bias: _,
        o_bias: _,
        mlp_bias: _,
    } = *config;
    let mut metadata = Metadata::default();
    let key = |rest: &str| key_of(family, rest);
    metadata.string("general.architecture", family.gguf);
    metadata.string("general.name", "random weights");
    metadata.integer("general.file_type", MOSTLY_Q4_K_M);
    metadata.integer("general.quantization_version", 2);
    let integers = [
        ("block_count", layers),
        ("context_length", max_positions),
        ("embedding_length", hidden),
        ("feed_forward_length", intermediate),
        ("attention.head_count", heads),
        ("attention.head_count_kv", kv_heads),
        ("attention.key_length", head_dim),
        ("attention.value_length", head_dim),
        ("rope.dimension_count", head_dim),
        ("vocab_size", vocab),
    ];
    integers.iter().for_each(|(rest, value)| metadata.integer(&key(rest), *value));
    metadata.float(&key("rope.freq_base"), rope_theta);
    metadata.float(&key("attention.layer_norm_rms_epsilon"), rms_norm_eps);

    let counts = [tensors.len() as u64, metadata.count].map(u64::to_le_bytes).concat();
    let mut header = [b"GGUF", &3_u32.to_le_bytes()[..], &counts, &metadata.bytes].concat();
    let mut start = 0;
    for tensor in tensors {
        header.extend(string(&tensor.name));
        header.extend((tensor.parameter.shape.len() as u32).to_le_bytes());
        // Columns first.
        header.extend(tensor.parameter.shape.iter().rev().flat_map(|dimension| dimension.to_le_bytes()));
        header.extend(types::code(tensor.kind()).to_le_bytes());
        header.extend(u64::to_le_bytes(start));
        start += tensor.padded();
    }
    header.resize(header.len().next_multiple_of(ALIGNMENT_BYTES as usize), 0);
    header
}

/// Keys with their values.
#[derive(Default)]
struct Metadata {
    count: u64,
    bytes: Vec<u8>,
}

impl Metadata {
    /// A value by the code of its type.
    fn push(&mut self, key: &str, code: u32, value: &[u8]) {
        self.count += 1;
        self.bytes.extend([&string(key), &code.to_le_bytes()[..], value].concat());
    }

    fn integer(&mut self, key: &str, value: u32) {
        self.push(key, 4, &value.to_le_bytes());
    }

    fn float(&mut self, key: &str, value: f32) {
        self.push(key, 6, &value.to_le_bytes());
    }

    fn string(&mut self, key: &str, value: &str) {
        self.push(key, 8, &string(value));
    }
}

/// A length, then the bytes.
fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}
