//! Tiny models, tokenizers and data.

use std::path::{Path, PathBuf};

use precast_fatbins::{Manifest, encode};
use precast_kernels::{Arch, KERNELS};
use precast_plan::{ModelConfig, Precision, build_keys};
use precast_system::files::Existing;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Case, fixture, root};

/// A model's shape as `config.json`, small enough for any test: `tests/models/tiny.json`, changed.
pub fn tiny_config(changes: &[(&str, Value)]) -> Value {
    let mut config = model_config("tiny");
    for (name, value) in changes {
        config[*name] = value.clone();
    }
    config
}

/// A model's shape in `tests/models`: kernels for all of them are packed for machines with a GPU.
pub fn model_config(name: &str) -> Value {
    let text = std::fs::read_to_string(root().join(format!("tests/models/{name}.json"))).expect("tests/models");
    serde_json::from_str(&text).expect("a configuration is JSON")
}

/// What a configuration says of a model.
pub fn shape(config: &Value) -> ModelConfig {
    ModelConfig::from_json(&config.to_string()).expect("a configuration of a model")
}

/// The elements of a list in JSON.
pub fn list<T: DeserializeOwned>(json: &Value) -> Vec<T> {
    serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// A field of each element of a list in JSON.
pub fn each<T: DeserializeOwned>(json: &Value, field: &str) -> Vec<T> {
    list::<Value>(json).iter().map(|element| serde_json::from_value(element[field].clone()).expect(field)).collect()
}

/// A bundle for the simulated GPU of all kernels of some models.
pub fn simulated(models: &[ModelConfig]) -> Vec<u8> {
    encode(&Manifest::simulated(&KERNELS, &build_keys(models).on(Arch::Sim)), |_| &[])
}

/// Writes a model of random weights below `dir`.
pub fn random_model(dir: &Path, name: &str, seed: u64, config: &Value) -> PathBuf {
    let json = dir.join(format!("{name}.json"));
    std::fs::write(&json, config.to_string()).expect("a scratch directory is writable");
    let out = dir.join(name);
    precast::programs::init::random(&json, None, seed, Precision::Fp32, &out, Existing::Keep)
        .expect("a tiny model is written");
    out
}

/// A `tokenizer.json` of the words of a text.
pub fn tokenizer(text: &str) -> Value {
    let mut words: Vec<&str> = text.split(' ').collect();
    words.sort_unstable();
    words.dedup();
    let vocab: serde_json::Map<String, Value> =
        words.iter().enumerate().map(|(id, word)| ((*word).to_owned(), id.into())).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": words[0]},
    })
}

/// The same, of a text whose words spaces part.
pub fn tokenizer_of_words(text: &str) -> Value {
    let mut tokenizer = tokenizer(text);
    tokenizer["pre_tokenizer"] = json!({"type": "WhitespaceSplit"});
    tokenizer
}

/// Words that tiny models read.
pub const WORDS: &str = "again and cat mat on sat the <u> <a> <e>";
/// A template of chats in them.
pub const TEMPLATE: &str = "{% for m in messages %}{{ '<u> ' if m.role == 'user' else '<a> ' }}{{ m.content }}\
                            {{ ' <e> ' }}{% endfor %}{% if add_generation_prompt %}{{ '<a> ' }}{% endif %}";

/// A student that reads words and messages, a teacher that does not, and `tables`, which has rows of every kind.
pub fn case_of_words() -> Case {
    let case = Case::new(17 * 4);
    case.write("student/tokenizer.json", tokenizer_of_words(WORDS).to_string());
    case.write("student/chat_template.jinja", TEMPLATE);
    std::os::unix::fs::symlink(fixture("data"), case.path("tables")).expect("a scratch directory is writable");
    case
}

/// Writes token ids below a vocabulary, the same for the same count.
pub fn token_file(dir: &Path, name: &str, count: u32, vocab: u32) -> PathBuf {
    let path = dir.join(name);
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % vocab
    };
    let bytes: Vec<u8> = (0..count).flat_map(|_| next().to_le_bytes()).collect();
    std::fs::write(&path, bytes).expect("a scratch directory is writable");
    path
}

/// A row of token ids as a line: labels of -100 where `counts` says no.
pub fn masked_row(ids: &[u32], counts: impl Fn(usize) -> bool) -> String {
    let labels: Vec<i64> =
        ids.iter().enumerate().map(|(at, id)| if counts(at) { i64::from(*id) } else { -100 }).collect();
    json!({"input_ids": ids, "labels": labels}).to_string() + "\n"
}

/// A copy of a model with a tensor of another content.
pub fn with_tensor(
    case: &Case,
    model: impl AsRef<Path>,
    name: &str,
    tensor: &str,
    change: impl Fn(usize, f32) -> f32,
) -> PathBuf {
    let to = case.path(name);
    copy(&case.path(model), &to);
    let file = to.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let whole = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let data = whole.tensor(tensor).unwrap().data();
    let (start, length) = (data.as_ptr() as usize - bytes.as_ptr() as usize, data.len());
    for (index, value) in bytes[start..start + length].chunks_exact_mut(4).enumerate() {
        let was = f32::from_le_bytes(value.try_into().unwrap());
        value.copy_from_slice(&change(index, was).to_le_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    to
}

/// A change of a norm's weight after which no logit is finite.
pub fn first_is_huge(index: usize, was: f32) -> f32 {
    if index == 0 { f32::MAX } else { was }
}

/// Copies a directory and all below it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a scratch directory is writable");
    for entry in std::fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file is copied");
        }
    }
}
