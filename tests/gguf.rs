//! GGUF files of random weights, in any mix of formats.

use std::path::{Path, PathBuf};

use half::f16;
use precast_kernels::{Block, Format};
use precast_plan::{Formats, ModelConfig, Parameters};

/// Codes of ggml's types.
const F32: u32 = 0;
const F16: u32 = 1;

fn code(block: Block) -> u32 {
    match block {
        Block::Q4_0 => 2,
        Block::Q4_1 => 3,
        Block::Q5_0 => 6,
        Block::Q5_1 => 7,
        Block::Q8_0 => 8,
        Block::Q4_K => 12,
        Block::Q5_K => 13,
        Block::Q6_K => 14,
    }
}

/// The scale, and the minimum, of blocks whose values are about as large as weights: 0.05.
fn halves(block: Block) -> [f32; 2] {
    match block {
        Block::Q4_0 => [0.01, 0.0],
        Block::Q4_1 => [0.01, -0.08],
        Block::Q5_0 => [0.005, 0.0],
        Block::Q5_1 => [0.005, -0.08],
        Block::Q8_0 => [0.0007, 0.0],
        Block::Q4_K => [0.0003, 0.0023],
        Block::Q5_K => [0.00015, 0.0023],
        Block::Q6_K => [0.00004, 0.0],
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// Around 0, of about 0.05.
    fn weight(&mut self) -> f32 {
        (self.next() as f32 / 2f32.powi(31) - 0.5) * 0.2
    }

    fn blocks(&mut self, block: Block, elems: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..Format::Block(block).bytes(elems)).map(|_| (self.next() >> 7) as u8).collect();
        for one in bytes.chunks_exact_mut(block.bytes() as usize) {
            let factor = 0.5 + self.next() as f32 / 2f32.powi(31);
            for (at, half) in block.halves().iter().zip(halves(block)) {
                one[*at..at + 2].copy_from_slice(&f16::from_f32(half * factor).to_le_bytes());
            }
        }
        bytes
    }
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// ggml's name of a tensor: of experts one for all.
fn name(config: &ModelConfig, hugging_face: &str) -> String {
    let (module, part) = hugging_face.rsplit_once('.').unwrap();
    let m = config.family.modules;
    let modules = [
        &m.q_norm,
        &m.k_norm,
        &m.experts.router,
        &m.experts.gate,
        &m.experts.up,
        &m.experts.down,
        &m.embedding,
        m.input_norm.as_ref().unwrap(),
        &m.q,
        &m.k,
        &m.v,
        &m.o,
        m.post_norm.as_ref().unwrap(),
        &m.gate,
        &m.up,
        &m.down,
        &m.norm,
        &m.head,
    ];
    let (layer, module) = match module.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.')) {
        Some((layer, module)) => (format!("blk.{layer}."), module),
        None => (String::new(), module),
    };
    let module = match module.strip_prefix("mlp.experts.").and_then(|rest| rest.split_once('.')) {
        Some((_, of_expert)) => format!("mlp.experts.*.{of_expert}"),
        None => module.to_owned(),
    };
    let module = modules.iter().find(|one| one.hugging_face == module).unwrap();
    format!("{layer}{}.{part}", module.gguf)
}

struct FileTensor {
    name: String,
    shape: Vec<u64>,
    code: u32,
    data: Vec<u8>,
}

/// Writes a model: matrices in the formats given and F16 elsewhere, vectors in F32.
pub fn write(dir: &Path, file: &str, config: &ModelConfig, formats: &Formats, seed: u64) -> PathBuf {
    let architecture = config.family.gguf;
    let mut metadata: Vec<Vec<u8>> =
        vec![[string("general.architecture"), 8u32.to_le_bytes().to_vec(), string(architecture)].concat()];
    let integers = [
        ("block_count", config.depth()),
        ("context_length", config.max_positions),
        ("embedding_length", config.hidden),
        ("feed_forward_length", config.intermediate),
        ("attention.head_count", config.heads),
        ("attention.head_count_kv", config.kv_heads),
        ("attention.key_length", config.head_dim),
        ("attention.value_length", config.head_dim),
    ];
    let key = |rest: &str| string(&format!("{architecture}.{rest}"));
    let of_experts = config.experts.iter().flat_map(|experts| {
        let counts = [("expert_count", experts.count), ("expert_used_count", experts.chosen)];
        counts.into_iter().chain([("expert_feed_forward_length", config.intermediate)])
    });
    let integers = integers.into_iter().chain(of_experts);
    metadata.extend(integers.map(|(rest, value)| [&key(rest)[..], &4u32.to_le_bytes(), &value.to_le_bytes()].concat()));
    let floats = [("rope.freq_base", config.ropes[0].theta), ("attention.layer_norm_rms_epsilon", config.rms_norm_eps)];
    metadata.extend(floats.map(|(rest, value)| [&key(rest)[..], &6u32.to_le_bytes(), &value.to_le_bytes()].concat()));

    let mut random = Random(seed);
    let mut tensors: Vec<FileTensor> = Vec::new();
    for parameter in &Parameters::new(config).list {
        let elems = parameter.elems();
        let is_norm = parameter.name.ends_with("norm.weight");
        let (code, data) = match formats.of(&parameter.name) {
            Some(block) => (code(block), random.blocks(block, elems)),
            None if parameter.shape.len() == 2 => {
                (F16, (0..elems).flat_map(|_| f16::from_f32(random.weight()).to_le_bytes()).collect())
            }
            None => {
                let one = f32::from(u8::from(is_norm));
                (F32, (0..elems).flat_map(|_| (one + random.weight()).to_le_bytes()).collect())
            }
        };
        let name = name(config, &parameter.name);
        match tensors.iter_mut().find(|tensor| tensor.name == name) {
            Some(of_experts) => {
                of_experts.shape[0] += 1;
                of_experts.data.extend(data);
            }
            None => {
                let is_of_experts = name.contains("_exps.");
                let shape = is_of_experts.then_some(1).into_iter().chain(parameter.shape.iter().copied()).collect();
                tensors.push(FileTensor { name, shape, code, data });
            }
        }
    }
    let (mut table, mut data) = (Vec::new(), Vec::new());
    for tensor in &tensors {
        table.extend(string(&tensor.name));
        table.extend((tensor.shape.len() as u32).to_le_bytes());
        table.extend(tensor.shape.iter().rev().flat_map(|size| size.to_le_bytes()));
        table.extend(tensor.code.to_le_bytes());
        table.extend((data.len() as u64).to_le_bytes());
        data.extend(&tensor.data);
        data.resize(data.len().next_multiple_of(32), 0);
    }
    let counts = [tensors.len() as u64, metadata.len() as u64].map(u64::to_le_bytes).concat();
    let mut bytes = [&b"GGUF"[..], &3u32.to_le_bytes(), &counts, &metadata.concat(), &table].concat();
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(data);
    let path = dir.join(file);
    std::fs::write(&path, bytes).expect("a scratch directory is writable");
    path
}
