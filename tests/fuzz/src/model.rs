//! A tiny model: in the files that a target reads, and read whole.

use std::path::Path;

use precast::programs::{export, init};
use precast_inputs::checkpoint::gguf::Encoding;
use precast_inputs::checkpoint::{Checkpoint, Scratch, Weights};
use precast_kernels::{Block, Dtype};
use precast_plan::{Parameter, Parameters, Precision};
use precast_system::files::Existing;
use serde_json::{Value, json};

use crate::{Folder, fixture};

/// Returns the `config.json` of a model with so many tokens.
fn config(class: &str, model_type: &str, vocab: u32) -> Value {
    json!({
        "architectures": [class], "model_type": model_type, "hidden_act": "silu", "hidden_size": 32,
        "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
        "head_dim": 16, "vocab_size": vocab, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "max_position_embeddings": 64, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2,
    })
}

/// Writes a model of random weights below a folder.
fn write(folder: &Folder, name: &str, config: &Value, precision: Precision) {
    let file = folder.put("of.json", config.to_string().as_bytes());
    init::random(&file, None, 1, precision, &folder.path(name), Existing::Replace).expect("a model is written");
}

/// Returns a folder that is a model but for its weights.
pub fn folder() -> Folder {
    let folder = Folder::new();
    folder.put("config.json", config("LlamaForCausalLM", "llama", 16).to_string().as_bytes());
    folder
}

/// Returns its weights as a safetensors file, in two dtypes.
pub fn seeds() -> Vec<Vec<u8>> {
    let folder = Folder::new();
    let of = |precision| {
        write(&folder, "seed", &config("LlamaForCausalLM", "llama", 16), precision);
        folder.read("seed/model.safetensors")
    };
    [Precision::Bf16, Precision::Fp32].map(of).into()
}

/// Returns a folder that is a model, and the model.
pub fn opened() -> (Folder, Checkpoint) {
    let folder = self::folder();
    folder.put("model.safetensors", &seeds()[0]);
    let checkpoint = Checkpoint::open(&folder.path("")).expect("a model opens");
    (folder, checkpoint)
}

/// Returns the names of its tensors.
pub fn tensors() -> Vec<String> {
    let (_folder, checkpoint) = opened();
    parameters(&checkpoint).into_iter().map(|one| one.name).collect()
}

/// Returns a folder with a model whose weights are twice in it, in two files that only an index names.
pub fn divided() -> Folder {
    let folder = self::folder();
    for index in 0..2 {
        folder.put(&format!("model-{index}.safetensors"), &seeds()[0]);
    }
    folder
}

/// Returns GGUF files of several families and types of blocks, one of them with a tokenizer and a chat template.
pub fn gguf_seeds() -> Vec<Vec<u8>> {
    let folder = Folder::new();
    let families = [("LlamaForCausalLM", "llama"), ("Qwen3ForCausalLM", "qwen3"), ("Qwen2ForCausalLM", "qwen2")];
    let random = families.map(|(class, model_type)| {
        let file = folder.put("of.json", config(class, model_type, 16).to_string().as_bytes());
        let file = init::random_gguf(&file, 1, &folder.path("gguf"), Existing::Replace).expect("a file is written");
        std::fs::read(file).expect("it is there")
    });
    let mut seeds = Vec::from(random);
    write(&folder, "seed", &config("LlamaForCausalLM", "llama", 544), Precision::Bf16);
    for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"] {
        folder.put(&format!("seed/{name}"), &fixture(&format!("tests/fixtures/masks/qwen3_training/{name}")));
    }
    for encoding in [Encoding::F32, Encoding::Blocks { layers: Block::Q8_0, ends: Block::Q8_0 }] {
        let file = folder.path(&format!("{}.gguf", seeds.len()));
        export::export(&folder.path("seed"), None, &file, encoding).expect("it is exported");
        seeds.push(std::fs::read(file).expect("it is there"));
    }
    seeds
}

fn parameters(checkpoint: &Checkpoint) -> Vec<Parameter> {
    Parameters::new(checkpoint.config()).list
}

/// Opens a model, and reads all that it has: weights, tokenizer, chat template, the tokens that end a text.
pub fn read(path: &Path) {
    let Ok(checkpoint) = Checkpoint::open(path) else { return };
    let (mut scratch, formats) = (Scratch::default(), checkpoint.formats());
    for parameter in parameters(&checkpoint) {
        let format = formats.of(&parameter.name).map_or(Dtype::F32.into(), precast_kernels::Format::Block);
        let _ = Weights::read(&checkpoint, &parameter, format, &mut scratch);
        let _ = checkpoint.read(&parameter, Dtype::Bf16.into(), &mut scratch);
    }
    let _ = (checkpoint.stored(), checkpoint.zeros(), checkpoint.eos_token(), checkpoint.chat_source());
    if let Ok(Some(tokenizer)) = checkpoint.tokenizer() {
        let _ = tokenizer.encode("A text, 12 naïve 🙂", precast_inputs::tokenizer::SpecialTokens::Add);
    }
}
